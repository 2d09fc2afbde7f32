  // numbers that arrive while the page is open: live.geojson beside it, as often as data.live says (seconds)
  function fromFeatures(features) {
    var own = { h3_high: [], h3_low: [], cell_0: [] };
    data.statistics.forEach(function (each, which) {
      Object.keys(each.columns).concat("status").forEach(function (name) { own[name + "_0_" + which] = []; });
    });
    features.forEach(function (feature, cell) {
      var text = feature.properties.hex_id.padStart(16, "0");
      own.h3_high.push(parseInt(text.slice(0, 8), 16));
      own.h3_low.push(parseInt(text.slice(8), 16));
      own.cell_0.push(cell);
      data.statistics.forEach(function (each, which) {
        Object.keys(each.columns).forEach(function (name) {
          var given = feature.properties[each.columns[name]];
          own[name + "_0_" + which].push(given === null || given === undefined ? NaN : each.root ? Math.sqrt(given) : given);
        });
        own["status_0_" + which].push(data.statuses.indexOf(feature.properties[each.stem + "_status"]));
      });
    });
    Object.keys(own).forEach(function (name) {
      own[name] = /^(cell|status|h3)_/.test(name) ? Uint32Array.from(own[name]) : Float64Array.from(own[name]);
    });
    own.places = new TextEncoder().encode(features.map(function (feature) { return feature.properties.place; }).join("\n"));
    return own;
  }

  // as outlines are, in one piece across the antimeridian
  function fromGeometries(features) {
    var rings = [], corners = [], lat = [], lng = [];
    features.forEach(function (feature) {
      var shape = feature.geometry, own = [].concat.apply([], shape.type === "Polygon" ? [shape.coordinates] : shape.coordinates);
      rings.push(own.length);
      own.forEach(function (ring) {
        corners.push(ring.length - 1);
        ring.slice(0, -1).forEach(function (at) {
          lat.push(at[1]);
          lng.push(at[0] < data.projection.cut ? at[0] + 360 : at[0]);
        });
      });
    });
    return { rings: beginnings(rings), corners: beginnings(corners), lat: lat, lng: lng };
  }

  function watch() {
    window.setInterval(function () {
      window.fetch("live.geojson", { cache: "no-store" }).then(function (answer) { return answer.json(); }).then(
        function (collection) {
          picked = -1;
          pinned = false;
          frame.setLatLngs([]);
          start(fromFeatures(collection.features), fromGeometries(collection.features));
          document.documentElement.dataset.reloads = Number(document.documentElement.dataset.reloads || 0) + 1;
        }
      ).catch(function () { document.getElementById("summary").textContent = {{ _("The newest numbers could not be read.") | tojson }}; });
    }, data.live * 1000);
  }
