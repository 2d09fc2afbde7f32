  var NOTHING = -2147483648;
  var TYPES = { u1: Uint8Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array };

  // columns by name, from the text that payload.py wrote
  function unpack(parts, text) {
    var packed = Uint8Array.from(atob(text), function (letter) { return letter.charCodeAt(0); });
    var stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer().then(function (buffer) {
      var bytes = new Uint8Array(buffer), at = 0, columns = {};
      parts.forEach(function (part) {
        var column = new TYPES[part.type](part.length), size = column.BYTES_PER_ELEMENT;
        var own = new Uint8Array(column.buffer);
        for (var j = 0; j < size; j += 1) {
          for (var i = 0; i < part.length; i += 1) { own[i * size + j] = bytes[at]; at += 1; }
        }
        columns[part.name] = column;
      });
      return columns;
    });
  }

  // a published number, or null
  function number(column, row) {
    var value = column[row];
    if (column instanceof Float64Array) { return Number.isNaN(value) ? null : value; }
    return value === NOTHING ? null : value / 1000;
  }

  // corners of all rings: each ring begins at its distance from the last ring's beginning, then goes on in steps
  function outlines(columns) {
    var rings = columns.corners.length, start = new Uint32Array(rings + 1), cell = new Uint32Array(rings);
    var x = new Int32Array(columns.dx.length), y = new Int32Array(columns.dx.length), at = 0, ring = 0;
    for (ring = 0; ring < rings; ring += 1) { start[ring + 1] = start[ring] + columns.corners[ring]; }
    for (ring = 0; ring < rings; ring += 1) {
      for (at = start[ring]; at < start[ring + 1]; at += 1) {
        var from = at > start[ring] ? at - 1 : start[ring - 1];
        x[at] = columns.dx[at] + (ring || at ? x[from] : 0);
        y[at] = columns.dy[at] + (ring || at ? y[from] : 0);
      }
    }
    ring = 0;
    columns.rings.forEach(function (count, number) {
      for (var k = 0; k < count; k += 1) { cell[ring] = number; ring += 1; }
    });
    return { x: x, y: y, start: start, cell: cell, cells: columns.rings.length };
  }

  // middles of cells (of their boxes), and their boxes
  function measured(shape) {
    var box = { left: new Float64Array(shape.cells).fill(Infinity), top: new Float64Array(shape.cells).fill(Infinity),
      right: new Float64Array(shape.cells).fill(-Infinity), bottom: new Float64Array(shape.cells).fill(-Infinity) };
    for (var ring = 0; ring < shape.cell.length; ring += 1) {
      var cell = shape.cell[ring];
      for (var at = shape.start[ring]; at < shape.start[ring + 1]; at += 1) {
        box.left[cell] = Math.min(box.left[cell], shape.x[at]);
        box.right[cell] = Math.max(box.right[cell], shape.x[at]);
        box.top[cell] = Math.min(box.top[cell], shape.y[at]);
        box.bottom[cell] = Math.max(box.bottom[cell], shape.y[at]);
      }
    }
    return box;
  }

  // which cells touch each square of SQUARE drawing units
  var SQUARE = 64;
  function squares(box, width) {
    var across = Math.ceil(width / SQUARE) + 1, found = new Map();
    for (var cell = 0; cell < box.left.length; cell += 1) {
      for (var v = Math.floor(box.top[cell] / SQUARE); v <= box.bottom[cell] / SQUARE; v += 1) {
        for (var h = Math.floor(box.left[cell] / SQUARE); h <= box.right[cell] / SQUARE; h += 1) {
          var key = v * across + h;
          if (!found.has(key)) { found.set(key, []); }
          found.get(key).push(cell);
        }
      }
    }
    return function (x, y) { return found.get(Math.floor(y / SQUARE) * across + Math.floor(x / SQUARE)) || []; };
  }

  // the look of one number: its class, hatched where the interval is wider than the limit
  function look(statistic, value, low, high, status, uncertainty) {
    if (value === null) { return "w"; }
    if (uncertainty) { return "ABCDEF".charAt(above(statistic.widths, high - low)); }
    if (data.statuses[status] === "uninformative") { return "u"; }
    return (high - low > statistic.limit ? "abcdefg" : "0123456").charAt(above(statistic.breaks, value));
  }

  function above(breaks, value) {
    return breaks.filter(function (limit) { return value >= limit; }).length;
  }
