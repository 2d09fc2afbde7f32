  var NOTHING = -2147483648;
  var TYPES = { u1: Uint8Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array };

  // columns by name, from the text that payload.py wrote
  function unpack(parts, text) {
    var letters = atob(text), packed = new Uint8Array(letters.length);
    for (var k = 0; k < packed.length; k += 1) { packed[k] = letters.charCodeAt(k); }
    var stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer().then(function (buffer) {
      var bytes = new Uint8Array(buffer), at = 0, columns = {};
      parts.forEach(function (part) {
        var column = new TYPES[part.type](part.length), size = column.BYTES_PER_ELEMENT;
        var own = new Uint8Array(column.buffer);
        for (var j = 0; j < size; j += 1) {
          for (var i = j; i < own.length; i += size) { own[i] = bytes[at]; at += 1; }
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

  // one text a line
  function texts(bytes) { return bytes.length ? new TextDecoder().decode(bytes).split("\n") : []; }

  // the shapes of some columns: where the rings (or lines, or points) of every shape and the corners of every ring
  // begin, and latitude and longitude of every corner; a ring begins at its distance from the last ring's beginning,
  // then goes on in steps
  function outlines(columns, prefix, from) {
    var corners = columns[prefix + "corners"], dx = columns[prefix + "dx"], dy = columns[prefix + "dy"];
    var found = {
      rings: beginnings(columns[prefix + "rings"]), corners: beginnings(corners),
      lat: new Float64Array(dx.length), lng: new Float64Array(dx.length)
    };
    for (var ring = 0, at = 0, beginX = 0, beginY = 0; ring < corners.length; ring += 1) {
      var x = beginX, y = beginY;
      for (var k = 0; k < corners[ring]; k += 1, at += 1) {
        x += dx[at];
        y += dy[at];
        if (!k) { beginX = x; beginY = y; }
        found.lat[at] = from.north - (y - from.margin) / from.units;
        found.lng[at] = from.west + (x - from.margin) / (from.squeeze * from.units);
      }
    }
    return found;
  }

  // how many come before every one, and last how many there are
  function beginnings(counts) {
    var found = new Uint32Array(counts.length + 1);
    for (var i = 0; i < counts.length; i += 1) { found[i + 1] = found[i] + counts[i]; }
    return found;
  }

  // the look of one number as it is read: its class, hatched where the interval is wider than the class's limit
  function look(statistic, one, layer) {
    if (one.value === null) { return "w"; }
    var read = asRead(one), width = read.high - read.low;
    if (layer === "certainty") { return "ABCDEF".charAt(above(statistic.widths, width + 1e-9)); }
    if (useless(one)) { return "u"; }
    if (layer === "slower") {
      return "hijklmo".charAt(3 - above(data.chances, tenths(one.slower)) + above(data.chances, tenths(one.faster)));
    }
    if (layer === "timetable") {
      var sure = one.scheduled && (one.share_high < 1 || one.share_low > 1);
      return sure ? "hijlmo".charAt(above(data.shares, 100 * one.share + 1e-9)) : "k";
    }
    var own = above(statistic.breaks, read.value);
    return (width > statistic.limits[own] + 1e-9 ? "abcdefg" : "0123456").charAt(own);
  }

  function useless(one) { return data.statuses[one.status] === "uninformative"; }

  function above(breaks, value) {
    var count = 0;
    while (count < breaks.length && value >= breaks[count]) { count += 1; }
    return count;
  }

  // numbers as people read them: no digit that the interval does not carry, and its ends rounded outwards
  function asRead(one) {
    var half = (one.high - one.low) / 2;
    var digits = half > 0 ? Math.max(0, Math.min(3, -Math.floor(Math.log10(half)))) : 1, unit = Math.pow(10, digits);
    return {
      digits: digits, value: Math.floor(one.value * unit + 0.5 + 1e-9) / unit,
      low: Math.floor(one.low * unit + 1e-6) / unit, high: Math.ceil(one.high * unit - 1e-6) / unit
    };
  }

  // the same as texts, with both ends of the wider interval where there is one; null where all is possible
  function rounded(one, most) {
    if (one.low <= 0 && one.high >= most) { return null; }
    var read = asRead(one), unit = Math.pow(10, read.digits);
    function text(number) { return number.toFixed(read.digits).replace(".", data.point); }
    return {
      value: text(read.value), low: text(read.low), high: text(read.high),
      outerLow: one.outer_low === undefined ? "" : text(Math.floor(one.outer_low * unit + 1e-6) / unit),
      outerHigh: one.outer_high === undefined ? "" : text(Math.ceil(one.outer_high * unit - 1e-6) / unit)
    };
  }

  // a chance as it is read, in ten: 0 is less than 1 in 20, 10 more than 19 in 20
  function tenths(chance) {
    var read = Math.floor(10 * chance + 0.5 + 1e-9);
    return chance < 0.05 ? 0 : chance > 0.95 ? 10 : Math.min(read, 9);
  }
