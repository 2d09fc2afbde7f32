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

  // the public layers as {kind, name, rings}, drawn
  function surround(map, shapes, names) {
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
      var style = KINDS[layer.kind];
      for (var end = at + layer.shapes; at < end; at += 1) {
        var rings = shapes[at].filter(function (ring) { return ring.length > 1; });
        var closed = rings.length && AREAS[layer.kind] && rings.every(function (ring) {
          var last = ring[ring.length - 1];
          return ring.length > 3 && ring[0][0] === last[0] && ring[0][1] === last[1];
        });
        known.push({ kind: layer.kind, rank: style.rank, name: names[at], rings: shapes[at], bounds: L.latLngBounds([].concat.apply([], shapes[at])) });
        if (!rings.length) { continue; }
        if (closed && style.under) { L.polygon(rings, L.extend({ pane: "under", renderer: sheet("under") }, style.under)).addTo(map); }
        if (!style.over) { continue; }
        L.polyline(rings, { pane: "edges", renderer: sheet("edges"), color: "#ffffff", opacity: 0.75, weight: style.over.weight + 2 }).addTo(map);
        L.polyline(rings, L.extend({ pane: "over", renderer: sheet("over") }, style.over)).addTo(map);
      }
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
  function letter(map, known) {
    var group = L.layerGroup().addTo(map), pane = map.createPane("names"), written = [];
    pane.style.zIndex = 600;
    pane.style.pointerEvents = "none";
    var order = known.filter(function (each) { return each.name; }).sort(function (one, other) { return one.rank - other.rank; });
    function renew() {
      var view = map.getBounds(), size = map.getSize(), closer = map.getZoom() - map.getMinZoom(), boxes = [];
      group.clearLayers();
      written = [];
      order.some(function (each) {
        if (each.rank > 2 + closer || !view.intersects(each.bounds)) { return false; }
        var points = [].concat.apply([], each.rings.map(function (ring) { return close(map, ring); }))
          .filter(function (point) { return point.x > 0 && point.y > 0 && point.x < size.x && point.y < size.y; });
        var half = each.name.length * 3.4 + 4, spread = L.bounds(points).getSize && points.length ? L.bounds(points).getSize() : null;
        if (!spread || (each.rings[0].length > 1 && Math.max(spread.x, spread.y) < half)) { return false; }
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

  // points of a line on the screen, none far from the next
  var STEP = 60, MOST_STEPS = 100;
  function close(map, ring) {
    var found = [], last = null;
    ring.forEach(function (place) {
      var point = map.latLngToContainerPoint(place), steps = last ? Math.min(MOST_STEPS, Math.ceil(last.distanceTo(point) / STEP)) : 1;
      for (var k = 1; k <= steps; k += 1) { found.push(last ? last.add(point.subtract(last).multiplyBy(k / steps)) : point); }
      last = point;
    });
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
