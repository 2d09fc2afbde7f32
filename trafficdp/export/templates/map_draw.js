  // what Leaflet does not bring: hatching as a colour, names that keep out of each other's way, and the picture

  // the colour of a look, or a pattern that shows it without colour too
  function inks() {
    var made = {}, ratio = window.devicePixelRatio || 1, size = 9;
    function line(pen, fromX, fromY, toX, toY) {
      pen.moveTo(fromX, fromY);
      pen.lineTo(toX, toY);
    }
    function pattern(letter, own) {
      var tile = document.createElement("canvas"), pen = tile.getContext("2d");
      tile.width = tile.height = Math.round(size * ratio);
      pen.scale(tile.width / size, tile.width / size);
      pen.fillStyle = own.colour;
      pen.fillRect(0, 0, size, size);
      pen.fillStyle = pen.strokeStyle = own.ink;
      pen.lineWidth = letter === "u" ? 1 : 1.6;
      pen.beginPath();
      if (letter === "w") {
        pen.arc(size / 2, size / 2, 1.3, 0, 2 * Math.PI);
        pen.fill();
      } else {
        if (letter === "u") {
          line(pen, 3, 3, 6, 6);
          line(pen, 3, 6, 6, 3);
        } else {
          [-size, 0, size].forEach(function (shift) { line(pen, shift - size, size * 2, shift + size * 2, -size); });
        }
        pen.stroke();
      }
      var found = pen.createPattern(tile, "repeat");
      found.setTransform(new DOMMatrix().scale(size / tile.width));
      return found;
    }
    return function (letter) {
      var own = data.looks[letter];
      made[letter] = made[letter] || (own.ink ? pattern(letter, own) : own.colour);
      return made[letter];
    };
  }

  // how a kind of public layer is drawn: under the hexagons, over them (a white edge below each line), its letters
  var KINDS = {
    park: { under: { stroke: false, fillColor: "#dfeedd", fillOpacity: 1 }, over: { color: "#2f6b2f", weight: 1, dashArray: "2 3" }, rank: 3 },
    water: { under: { stroke: false, fillColor: "#cfe3f3", fillOpacity: 1 }, over: { color: "#0b4f9e", weight: 2 }, rank: 1 },
    boundary: { over: { color: "#4d4d4d", weight: 1.5, dashArray: "8 4 2 4" }, rank: 4 },
    transit: { over: { color: "#7a0177", weight: 1.2, dashArray: "5 3" }, rank: 5 },
    roads: { over: { color: "#262626", weight: 1.2 }, rank: 2 },
    place: { rank: 0 }
  };
  var AREAS = { park: true, water: true, boundary: true };

  // outlines with their places on Leaflet's map of 256 pixels, and the box of every shape, there and in degrees: least
  // x, least y, most x, most y
  function placed(outlines) {
    var size = outlines.lat.length, shapes = outlines.rings.length - 1, x = new Float64Array(size), y = new Float64Array(size);
    for (var i = 0; i < size; i += 1) {
      var sine = Math.sin(Math.max(-MOST_NORTH, Math.min(MOST_NORTH, outlines.lat[i])) * Math.PI / 180);
      x[i] = 256 * (0.5 + outlines.lng[i] / 360);
      y[i] = 256 * (0.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI));
    }
    function boxes(x, y) {
      var found = new Float64Array(4 * shapes);
      for (var shape = 0; shape < shapes; shape += 1) {
        var left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
        for (var k = outlines.corners[outlines.rings[shape]]; k < outlines.corners[outlines.rings[shape + 1]]; k += 1) {
          if (x[k] < left) { left = x[k]; }
          if (x[k] > right) { right = x[k]; }
          if (y[k] < top) { top = y[k]; }
          if (y[k] > bottom) { bottom = y[k]; }
        }
        found.set([left, top, right, bottom], 4 * shape);
      }
      return found;
    }
    return {
      rings: outlines.rings, corners: outlines.corners, lat: outlines.lat, lng: outlines.lng, x: x, y: y,
      boxes: boxes(x, y), degrees: boxes(outlines.lng, outlines.lat)
    };
  }
  var MOST_NORTH = 85.0511287798;

  // the box of a shape, or of all, in degrees
  function boundsOf(outlines, shape) {
    var box = outlines.degrees, at = 4 * shape;
    return L.latLngBounds([box[at + 1], box[at]], [box[at + 3], box[at + 2]]);
  }
  function boundsOfAll(outlines) {
    var own = outlines.degrees, box = [Infinity, Infinity, -Infinity, -Infinity];
    for (var k = 0; k < own.length; k += 1) { box[k % 4] = k % 4 < 2 ? Math.min(box[k % 4], own[k]) : Math.max(box[k % 4], own[k]); }
    return L.latLngBounds([box[1], box[0]], [box[3], box[2]]);
  }

  // Many shapes as one layer, which is drawn in a fraction of the time that a layer for each would take. ``outlines``
  // are placed; ``batches`` lists {fillColor, shapes}; a path has up to ``together`` shapes of a batch. With ``closed``
  // lines are edges of areas. ``over`` is the shape that the pointer is in.
  var MOST_OF_A_PATH = 30;
  var Shapes = L.Path.extend({
    initialize: function (outlines, batches, options) {
      L.setOptions(this, options);
      this.outlines = outlines;
      this.batches = batches;
      this.bounds = boundsOfAll(outlines);
      this.over = -1;
    },
    getBounds: function () { return this.bounds; },
    _project: function () {
      this._scale = this._map.getZoomScale(this._map.getZoom(), 0);
      this._origin = this._map.getPixelOrigin();
      this._pxBounds = L.bounds(this._map.latLngToLayerPoint(this.bounds.getSouthWest()), this._map.latLngToLayerPoint(this.bounds.getNorthEast()));
    },
    _update: function () {},
    // what a renderer asks for while it draws
    _updatePath: function () {
      var layer = this, style = this.options;
      if (!this._renderer._drawing) { return; }
      if (style.fill) {
        this.batches.forEach(function (batch) { layer._draw(batch.shapes, L.extend({}, style, batch, { stroke: false })); });
      }
      if (style.stroke) {
        this.batches.forEach(function (batch) { layer._draw(batch.shapes, L.extend({}, style, { fill: false })); });
      }
    },
    _draw: function (shapes, style) {
      var renderer = this._renderer, pen = renderer._ctx, view = renderer._bounds, scale = this._scale, origin = this._origin;
      var boxes = this.outlines.boxes, traced = 0;
      var left = (view.min.x + origin.x - style.weight) / scale, right = (view.max.x + origin.x + style.weight) / scale;
      var top = (view.min.y + origin.y - style.weight) / scale, bottom = (view.max.y + origin.y + style.weight) / scale;
      function finish() {
        if (traced) { renderer._fillStroke(pen, { options: style }); }
        pen.beginPath();
        traced = 0;
      }
      finish();
      for (var i = 0; i < shapes.length; i += 1) {
        var at = 4 * shapes[i];
        if (boxes[at] > right || boxes[at + 2] < left || boxes[at + 1] > bottom || boxes[at + 3] < top) { continue; }
        this._trace(pen, shapes[i], style.closed);
        traced += 1;
        if (traced >= (style.together || MOST_OF_A_PATH)) { finish(); }
      }
      finish();
    },
    _trace: function (pen, shape, closed) {
      var outlines = this.outlines, scale = this._scale, left = this._origin.x, top = this._origin.y;
      for (var ring = outlines.rings[shape]; ring < outlines.rings[shape + 1]; ring += 1) {
        var first = outlines.corners[ring], end = outlines.corners[ring + 1];
        if (end - first < 2) { continue; }
        pen.moveTo(outlines.x[first] * scale - left, outlines.y[first] * scale - top);
        for (var k = first + 1; k < end; k += 1) { pen.lineTo(outlines.x[k] * scale - left, outlines.y[k] * scale - top); }
        if (closed) { pen.closePath(); }
      }
    },
    _containsPoint: function (point) {
      this.over = this.at((point.x + this._origin.x) / this._scale, (point.y + this._origin.y) / this._scale);
      return this.over >= 0;
    },
    // the shape around a point of the map of 256 pixels; -1 where there is none
    at: function (x, y) {
      var outlines = this.outlines, boxes = outlines.boxes;
      for (var shape = 0; shape < outlines.rings.length - 1; shape += 1) {
        var box = 4 * shape, inside = false;
        if (x < boxes[box] || y < boxes[box + 1] || x > boxes[box + 2] || y > boxes[box + 3]) { continue; }
        for (var ring = outlines.rings[shape]; ring < outlines.rings[shape + 1]; ring += 1) {
          for (var k = outlines.corners[ring], last = outlines.corners[ring + 1] - 1; k < outlines.corners[ring + 1]; last = k, k += 1) {
            var above = outlines.y[k] > y;
            if (above === outlines.y[last] > y) { continue; }
            if (x < (outlines.x[last] - outlines.x[k]) * (y - outlines.y[k]) / (outlines.y[last] - outlines.y[k]) + outlines.x[k]) { inside = !inside; }
          }
        }
        if (inside) { return shape; }
      }
      return -1;
    }
  });

  // the public layers, drawn, as {kind, rank, name, shape, bounds} of every shape
  function surround(map, outlines, names) {
    ["under", "edges", "over"].forEach(function (name, number) {
      var pane = map.createPane(name);
      pane.style.zIndex = [350, 410, 420][number];
      pane.style.pointerEvents = "none";
    });
    var at = 0, known = [];
    if (data.tiles) {
      L.tileLayer(data.tiles, { referrerPolicy: "no-referrer", maxNativeZoom: 18, maxZoom: 30 }).addTo(map);
    }
    data.context.forEach(function (layer) {
      if (!layer.shapes) { return; }
      var style = KINDS[layer.kind], areas = [], lines = [];
      function add(pane, shapes, options) {
        if (!options || !shapes.length) { return; }
        new Shapes(outlines, [{ shapes: shapes }], L.extend({ pane: pane, renderer: sheet(pane), interactive: false }, options)).addTo(map);
      }
      for (var end = at + layer.shapes; at < end; at += 1) {
        known.push({ kind: layer.kind, rank: style.rank, name: names[at], shape: at, bounds: boundsOf(outlines, at) });
        var rings = [];
        for (var ring = outlines.rings[at]; ring < outlines.rings[at + 1]; ring += 1) {
          var first = outlines.corners[ring], last = outlines.corners[ring + 1] - 1;
          if (last > first) { rings.push(last - first > 2 && outlines.lat[first] === outlines.lat[last] && outlines.lng[first] === outlines.lng[last]); }
        }
        if (rings.length) { lines.push(at); }
        if (rings.length && AREAS[layer.kind] && rings.every(Boolean)) { areas.push(at); }
      }
      // areas may overlap, so that each is a path
      add("under", areas, style.under && L.extend({ fill: true, together: 1 }, style.under));
      add("edges", lines, style.over && { color: "#ffffff", opacity: 0.75, weight: style.over.weight + 2 });
      add("over", lines, style.over);
    });
    return known;
  }
  var sheets = {};
  function sheet(pane) {
    sheets[pane] = sheets[pane] || L.canvas({ pane: pane, padding: 0.2 });
    return sheets[pane];
  }

  // writes as many names as fit, the most telling first, again after every move
  var MOST_NAMES = 40;
  function letter(map, outlines, known) {
    var group = L.layerGroup().addTo(map), pane = map.createPane("names"), written = [];
    pane.style.zIndex = 600;
    pane.style.pointerEvents = "none";
    var order = known.filter(function (each) { return each.name; }).sort(function (one, other) { return one.rank - other.rank; });
    function renew() {
      var view = map.getBounds(), size = map.getSize(), closer = map.getZoom() - map.getMinZoom(), boxes = [];
      var scale = map.getZoomScale(map.getZoom(), 0);
      group.clearLayers();
      written = [];
      order.some(function (each) {
        if (each.rank > 2 + closer || !view.intersects(each.bounds)) { return false; }
        var half = each.name.length * 3.4 + 4, own = 4 * each.shape, ring = outlines.rings[each.shape];
        var line = outlines.corners[ring + 1] - outlines.corners[ring] > 1;
        if (line && scale * Math.max(outlines.boxes[own + 2] - outlines.boxes[own], outlines.boxes[own + 3] - outlines.boxes[own + 1]) < half) { return false; }
        var points = close(map, outlines, each.shape)
          .filter(function (point) { return point.x > 0 && point.y > 0 && point.x < size.x && point.y < size.y; });
        var spread = points.length ? L.bounds(points).getSize() : null;
        if (!spread || (line && Math.max(spread.x, spread.y) < half)) { return false; }
        var middle = points[points.length >> 1], box = [middle.x - half, middle.y - 9, middle.x + half, middle.y + 9];
        var blocked = box[0] < 0 || box[2] > size.x || boxes.some(function (other) {
          return box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1];
        });
        if (blocked) { return false; }
        boxes.push(box);
        written.push({ text: each.name, x: middle.x, y: middle.y, kind: each.kind });
        L.marker(map.containerPointToLatLng(middle), {
          pane: "names", interactive: false, keyboard: false,
          icon: L.divIcon({ className: "name " + each.kind, iconSize: [0, 0], html: element("span", each.name) })
        }).addTo(group);
        return written.length >= MOST_NAMES;
      });
    }
    map.on("moveend", renew);
    renew();
    return function () { return written; };
  }

  // points of a shape's lines on the screen, none far from the next of its line
  var STEP = 60, MOST_STEPS = 100;
  function close(map, outlines, shape) {
    var found = [], scale = map.getZoomScale(map.getZoom(), 0);
    var shift = map.layerPointToContainerPoint([0, 0]).subtract(map.getPixelOrigin());
    for (var ring = outlines.rings[shape]; ring < outlines.rings[shape + 1]; ring += 1) {
      for (var at = outlines.corners[ring], last = null; at < outlines.corners[ring + 1]; at += 1) {
        var point = L.point(outlines.x[at] * scale + shift.x, outlines.y[at] * scale + shift.y);
        var steps = last ? Math.min(MOST_STEPS, Math.ceil(last.distanceTo(point) / STEP)) : 1;
        for (var k = 1; k <= steps; k += 1) { found.push(last ? last.add(point.subtract(last).multiplyBy(k / steps)) : point); }
        last = point;
      }
    }
    return found;
  }

  // the map as it is seen now, with its title, legend and sources, as a PNG
  function picture(map, written, legend, paint) {
    var around = map.getContainer().getBoundingClientRect(), lines = legend.lines, k = 2, edge = 16;
    var columns = Math.max(1, Math.floor(around.width / 260)), foot = Math.ceil(lines.length / columns) * 20;
    var canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
    canvas.width = k * (around.width + 2 * edge);
    canvas.height = k * (around.height + foot + 4 * edge + 66 + 15 * Math.floor(legend.foot.length * 6 / around.width));
    pen.scale(k, k);
    pen.fillStyle = "#ffffff";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    function say(text, x, y, size, bold) {
      pen.font = (bold ? "bold " : "") + size + "px system-ui, sans-serif";
      pen.fillText(text, x, y, around.width - x + edge);
    }
    pen.fillStyle = "#1a1a1a";
    say(legend.title, edge, edge + 18, 18, true);
    say(legend.subtitle, edge, edge + 38, 13);
    pen.save();
    pen.translate(edge, edge + 48);
    pen.beginPath();
    pen.rect(0, 0, around.width, around.height);
    pen.clip();
    ["under", "cells", "edges", "over"].forEach(function (name) {
      var pane = map.getPane(name), sheet = pane && pane.querySelector("canvas");
      if (!sheet) { return; }
      var place = sheet.getBoundingClientRect();
      pen.drawImage(sheet, place.left - around.left, place.top - around.top, place.width, place.height);
    });
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineWidth = 3;
    pen.strokeStyle = "#ffffff";
    written.forEach(function (each) { pen.strokeText(each.text, each.x, each.y); pen.fillText(each.text, each.x, each.y); });
    pen.restore();
    pen.strokeStyle = "#767676";
    pen.strokeRect(edge, edge + 48, around.width, around.height);
    var top = around.height + 2 * edge + 48;
    lines.forEach(function (line, number) {
      var x = edge + (number % columns) * 260, y = top + Math.floor(number / columns) * 20;
      pen.fillStyle = paint(line.letter);
      pen.fillRect(x, y, 32, 14);
      pen.strokeRect(x, y, 32, 14);
      pen.fillStyle = "#1a1a1a";
      pen.font = "12px system-ui, sans-serif";
      pen.fillText(line.text, x + 40, y + 11, 215);
    });
    pen.font = "11px system-ui, sans-serif";
    legend.foot.split(" ").reduce(function (line, word, number, all) {
      var longer = line.text ? line.text + " " + word : word, full = pen.measureText(longer).width > around.width;
      if (full) { pen.fillText(line.text, edge, line.y); }
      line = full ? { text: word, y: line.y + 15 } : { text: longer, y: line.y };
      if (number === all.length - 1) { pen.fillText(line.text, edge, line.y); }
      return line;
    }, { text: "", y: top + foot + 14 });
    return canvas;
  }
