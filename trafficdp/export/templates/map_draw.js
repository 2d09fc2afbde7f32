  // paints cells by their looks (a letter each) on a canvas under the drawing's own coordinates
  function painter(canvas, svg, shape, box) {
    var paper = canvas.getContext("2d"), patterns = {}, ratio = 0;
    var shot = document.createElement("canvas"), taken = null, later = 0;
    // more cells than this are moved and stretched as a picture first, and painted anew when it is quiet
    var MANY = 4000, QUIET = 90;

    function tile(size, background, draw) {
      var small = document.createElement("canvas");
      small.width = small.height = size;
      var pen = small.getContext("2d");
      pen.fillStyle = background;
      pen.fillRect(0, 0, size, size);
      draw(pen, size);
      return paper.createPattern(small, "repeat");
    }
    function hatch(pen, size) {
      for (var shift = -size; shift <= size; shift += size) {
        pen.moveTo(shift - size, size * 2); pen.lineTo(shift + size * 2, -size);
      }
    }
    function cross(pen, size) {
      hatch(pen, size);
      for (var shift = -size; shift <= size; shift += size) {
        pen.moveTo(shift - size, -size); pen.lineTo(shift + size * 2, size * 2);
      }
    }
    function stroked(draw, ink, width) {
      return function (pen, size) {
        pen.strokeStyle = ink;
        pen.lineWidth = width * ratio;
        pen.beginPath();
        draw(pen, size);
        pen.stroke();
      };
    }
    function ink(letter) {
      if (patterns[letter]) { return patterns[letter]; }
      var own = data.looks[letter], size = Math.round(9 * ratio), made = own.colour;
      if (letter === "w") {
        made = tile(size, own.colour, function (pen) {
          pen.fillStyle = own.ink;
          pen.beginPath();
          pen.arc(size / 2, size / 2, 1.3 * ratio, 0, 2 * Math.PI);
          pen.fill();
        });
      } else if (letter === "u") {
        made = tile(size, own.colour, stroked(cross, own.ink, 1));
      } else if (own.ink) {
        made = tile(size, own.colour, stroked(hatch, own.ink, 1.6));
      }
      patterns[letter] = made;
      return made;
    }

    function trace(ring, k, left, top) {
      var at = shape.start[ring], end = shape.start[ring + 1];
      paper.moveTo(shape.x[at] * k + left, shape.y[at] * k + top);
      for (at += 1; at < end; at += 1) { paper.lineTo(shape.x[at] * k + left, shape.y[at] * k + top); }
      paper.closePath();
    }

    // where the drawing lies on the canvas: its scale and its upper left corner
    function placing() {
      var around = svg.getBoundingClientRect(), matrix = svg.getScreenCTM();
      if (!matrix || !around.width) { return null; }
      if (ratio !== window.devicePixelRatio) { ratio = window.devicePixelRatio; patterns = {}; taken = null; }
      var width = Math.round(around.width * ratio), height = Math.round(around.height * ratio);
      if (canvas.width !== width || canvas.height !== height) {
        canvas.width = width; canvas.height = height;
        taken = null;
      }
      return { k: matrix.a * ratio, left: (matrix.e - around.left) * ratio, top: (matrix.f - around.top) * ratio };
    }

    // letters are repainted when they are others than before; a mere move may first show the last picture
    function paint(letters) {
      var place = placing();
      if (!place) { return; }
      window.clearTimeout(later);
      if (taken && taken.letters === letters && shape.cells > MANY) {
        var stretch = place.k / taken.k;
        paper.clearRect(0, 0, canvas.width, canvas.height);
        paper.setTransform(stretch, 0, 0, stretch, place.left - taken.left * stretch, place.top - taken.top * stretch);
        paper.drawImage(shot, 0, 0);
        paper.setTransform(1, 0, 0, 1, 0, 0);
        later = window.setTimeout(function () { paintAll(letters, placing()); }, QUIET);
        return;
      }
      paintAll(letters, place);
    }

    // few cells a path: a browser paints many short paths faster than one very long one
    var BATCH = 32;
    function paintAll(letters, place) {
      var k = place.k, left = place.left, top = place.top, width = canvas.width, height = canvas.height;
      paper.clearRect(0, 0, width, height);
      var groups = {};
      for (var ring = 0; ring < shape.cell.length; ring += 1) {
        var cell = shape.cell[ring];
        if (box.right[cell] * k + left < 0 || box.left[cell] * k + left > width) { continue; }
        if (box.bottom[cell] * k + top < 0 || box.top[cell] * k + top > height) { continue; }
        var letter = letters[cell];
        (groups[letter] = groups[letter] || []).push(ring);
      }
      var lines = k * 60 > 7 * ratio;
      paper.strokeStyle = "#595959";
      paper.lineWidth = 0.5 * ratio;
      Object.keys(groups).sort().forEach(function (letter) {
        paper.fillStyle = ink(letter);
        for (var from = 0; from < groups[letter].length; from += BATCH) {
          paper.beginPath();
          groups[letter].slice(from, from + BATCH).forEach(function (ring) { trace(ring, k, left, top); });
          paper.fill();
          if (lines) { paper.stroke(); }
        }
      });
      if (shape.cells > MANY) {
        shot.width = width; shot.height = height;
        shot.getContext("2d").drawImage(canvas, 0, 0);
        taken = { k: k, left: left, top: top, letters: letters };
      }
    }

    // whether a point of the drawing lies in a cell: in an odd number of its rings
    function inside(cell, x, y) {
      var odd = false;
      for (var ring = first(cell); ring < shape.cell.length && shape.cell[ring] === cell; ring += 1) {
        var end = shape.start[ring + 1];
        for (var at = shape.start[ring], last = end - 1; at < end; last = at, at += 1) {
          var up = shape.y[at] > y;
          if (up !== (shape.y[last] > y) &&
              x < (shape.x[last] - shape.x[at]) * (y - shape.y[at]) / (shape.y[last] - shape.y[at]) + shape.x[at]) {
            odd = !odd;
          }
        }
      }
      return odd;
    }
    function first(cell) {
      var low = 0, high = shape.cell.length;
      while (low < high) {
        var middle = (low + high) >> 1;
        if (shape.cell[middle] < cell) { low = middle + 1; } else { high = middle; }
      }
      return low;
    }
    function path(cell) {
      var text = "";
      for (var ring = first(cell); ring < shape.cell.length && shape.cell[ring] === cell; ring += 1) {
        for (var at = shape.start[ring]; at < shape.start[ring + 1]; at += 1) {
          text += (at === shape.start[ring] ? "M" : "L") + shape.x[at] + " " + shape.y[at];
        }
        text += "z";
      }
      return text;
    }
    return { paint: paint, inside: inside, path: path };
  }
