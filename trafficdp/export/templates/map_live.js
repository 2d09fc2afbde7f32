  // numbers that arrive while the page is open: live.geojson beside it, as often as data.live says (seconds)
  function fromFeatures(features) {
    var own = { h3_high: [], h3_low: [], rings: [], corners: [], dx: [], dy: [], cell_0: [] }, last = [0, 0];
    data.statistics.forEach(function (each, which) {
      ["value", "low", "high", "status"].forEach(function (name) { own[name + "_0_" + which] = []; });
    });
    features.forEach(function (feature, cell) {
      var text = feature.properties.h3.padStart(16, "0"), shape = feature.geometry;
      own.h3_high.push(parseInt(text.slice(0, 8), 16));
      own.h3_low.push(parseInt(text.slice(8), 16));
      own.cell_0.push(cell);
      var rings = shape.type === "Polygon" ? shape.coordinates : [].concat.apply([], shape.coordinates);
      own.rings.push(rings.length);
      rings.forEach(function (ring) {
        var points = ring.slice(0, -1).map(projected), from = last;
        own.corners.push(points.length);
        points.forEach(function (point) {
          own.dx.push(point[0] - from[0]);
          own.dy.push(point[1] - from[1]);
          from = point;
        });
        last = points[0];
      });
      data.statistics.forEach(function (each, which) {
        [["value", ""], ["low", "_low"], ["high", "_high"]].forEach(function (pair) {
          var given = feature.properties[each.column + pair[1]];
          own[pair[0] + "_0_" + which].push(given === null || given === undefined ? NaN : given);
        });
        own["status_0_" + which].push(data.statuses.indexOf(feature.properties[each.stem + "_status"]));
      });
    });
    Object.keys(own).forEach(function (name) {
      own[name] = /^(value|low|high)_/.test(name) ? Float64Array.from(own[name]) : Int32Array.from(own[name]);
    });
    own.h3_high = Uint32Array.from(own.h3_high);
    own.h3_low = Uint32Array.from(own.h3_low);
    return own;
  }

  function projected(position) {
    var to = data.projection, east = position[0] < to.cut ? position[0] + 360 : position[0];
    return [Math.round((east - to.west) * to.squeeze * to.units + to.margin),
      Math.round((to.north - position[1]) * to.units + to.margin)];
  }

  function watch() {
    window.setInterval(function () {
      window.fetch("live.geojson", { cache: "no-store" }).then(function (answer) { return answer.json(); }).then(
        function (collection) {
          picked = -1;
          pick.setAttribute("d", "");
          start(fromFeatures(collection.features));
          document.documentElement.dataset.reloads = Number(document.documentElement.dataset.reloads || 0) + 1;
        }
      ).catch(function () { document.getElementById("summary").textContent = "The newest numbers could not be read."; });
    }, data.live * 1000);
  }
