(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("data").textContent);
{% include "map_data.js" %}
{% include "map_draw.js" %}
  var card = document.getElementById("card");
  var statisticList = document.getElementById("statistic");
  var showList = document.getElementById("show");
  var slotRange = document.getElementById("slot");
  var playButton = document.getElementById("play");
  var search = document.getElementById("search");
  var legends = Array.prototype.slice.call(document.querySelectorAll(".legend"));
  var calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  var container = document.getElementById("map"), paint = inks();
  var map = L.map(container, {
    zoomControl: false, attributionControl: false, keyboard: false, dragging: false, zoomSnap: 0.25, zoomDelta: 0.5,
    wheelPxPerZoomLevel: 90, maxBoundsViscosity: 1, bounceAtZoomLimits: false, zoomAnimation: !calm.matches,
    fadeAnimation: false
  });
  // for whoever looks in from outside, such as tests
  container.leaflet = map;
  var columns, hexagons, cells, places, rows, whole, known = [], written = function () { return []; };
  var frame = null, picked = -1, pointed = -1, pinned = false, lined = null, timer = 0;

  function start(unpacked, outlines) {
    var again = Boolean(hexagons);
    columns = unpacked;
    places = texts(columns.places);
    rows = [];
    index(0);
    if (again) { hexagons.remove(); }
    cells = placed(outlines);
    hexagons = new Shapes(cells, [], {
      pane: "cells", renderer: sheet("cells"), color: "#595959", weight: 0.6, fill: true, fillOpacity: data.tiles ? 0.8 : 1, closed: true,
      // districts may overlap
      together: data.noun === "zone" ? 1 : 0
    });
    if (!again) { begin(); }
    show();
    hexagons.setStyle({ stroke: lined }).addTo(map);
    hexagons.on("mouseover", function () { point(hexagons.over); });
    hexagons.on("mousemove", function () { point(hexagons.over); });
    hexagons.on("mouseout", function () { pointed = -1; });
    hexagons.on("click", function () { pin(hexagons.over); });
    hexagons.bindTooltip(function () { return brief(hexagons.over); }, { sticky: true, direction: "top", className: "tip" });
    function drawn() { document.documentElement.dataset.drawn = places.length; }
    if (again) { drawn(); return; }
    // the hexagons are seen before streets and names
    window.requestAnimationFrame(function () { window.setTimeout(function () { finish(); drawn(); }); });
  }

  // the row of every cell in a slot whose columns are there, -1 where there is none
  function index(position) {
    rows[position] = new Int32Array(columns.h3_high.length).fill(-1);
    columns["cell_" + position].forEach(function (cell, row) { rows[position][cell] = row; });
  }

  function nameOf(cell) {
    if (data.noun === "zone") { return String(columns.h3_low[cell]); }
    return (columns.h3_high[cell].toString(16) + columns.h3_low[cell].toString(16).padStart(8, "0")).replace(/^0+/, "");
  }
  function middleOf(cell) { return boundsOf(cells, cell).getCenter(); }

  // the page has the first slot before this script, the others behind it; each is unpacked when it is turned to
  var fetched = [];
  function fetchSlot(position) {
    fetched[position] = fetched[position] || whenRead().then(function () {
      var block = JSON.parse(document.getElementsByClassName("later")[position - 1].textContent);
      return unpack(block.parts, block.numbers);
    }).then(function (more) {
      Object.assign(columns, more);
      index(position);
    });
    return fetched[position];
  }
  function whenRead() {
    return new Promise(function (done) {
      if (document.readyState !== "loading") { done(); }
      document.addEventListener("DOMContentLoaded", done);
    });
  }

  // once, when it is known where the map lies
  function begin() {
    whole = hexagons.getBounds().pad(0.02);
    fit();
    map.createPane("cells").style.zIndex = 400;
    map.on("zoomend", loosen);
    frame = L.polygon([], { pane: "pick", renderer: L.svg({ pane: "pick" }), className: "pick", color: "#d00000", weight: 3, fill: false, interactive: false }).addTo(map);
  }
  // once, what lies around the hexagons
  function finish() {
    var around = placed(outlines(columns, "context_", data.places)), area = placed(outlines(columns, "area_", data.places));
    known = surround(map, around, texts(columns.context_names));
    new Shapes(area, [{ shapes: [0] }], { interactive: false, color: "#767676", weight: 1, dashArray: "6 4", pane: "outline", renderer: sheet("outline") }).addTo(map);
    L.control.scale({ imperial: false, position: "bottomleft" }).addTo(map);
    written = letter(map, around, known);
  }
  ["outline", "pick"].forEach(function (name) {
    var pane = map.createPane(name);
    pane.style.zIndex = name === "pick" ? 500 : 430;
    pane.style.pointerEvents = "none";
  });

  function fit() {
    aim = null;
    map.setMinZoom(0);
    map.setMaxBounds(null);
    map.fitBounds(whole, { animate: false });
    map.setMinZoom(map.getZoom());
    map.setMaxZoom(map.getZoom() + 7);
    map.setMaxBounds(map.getBounds());
    loosen();
  }

  // one finger scrolls the page until the map is zoomed; small hexagons have no edges
  function loosen() {
    map.dragging[map.getZoom() > map.getMinZoom() ? "enable" : "disable"]();
    var box = boundsOf(cells, 0), edges = map.latLngToContainerPoint(box.getSouthWest()).y - map.latLngToContainerPoint(box.getNorthEast()).y > 7;
    if (edges === lined) { return; }
    lined = edges;
    hexagons.setStyle({ stroke: edges });
  }

  // the slot that is shown, which is the chosen one as soon as its numbers are there
  var shown = 0;
  function slot() { return shown; }
  function chosen() { return slotRange ? Number(slotRange.value) : 0; }
  function statistic() { return Number(statisticList.value); }

  // the numbers and the status of a statistic in a cell now; null without a record
  function told(cell, which) {
    var row = rows[slot()][cell], stem = "_" + slot() + "_" + which;
    if (row < 0) { return null; }
    var found = { status: columns["status" + stem][row], row: row };
    Object.keys(data.statistics[which].columns).forEach(function (name) {
      found[name] = number(columns[name + stem], row);
    });
    return found;
  }

  function show() {
    if (!rows[chosen()]) {
      fetchSlot(chosen()).then(show);
      return;
    }
    shown = chosen();
    var which = statistic();
    [["slower", "chances"], ["timetable", "timetable"]].forEach(function (pair) {
      var layer = showList.querySelector("[value=" + pair[0] + "]");
      if (!layer) { return; }
      layer.disabled = !data.statistics[which][pair[1]];
      if (layer.disabled && layer.selected) { showList.value = "value"; }
    });
    var batches = {};
    for (var cell = 0; cell < places.length; cell += 1) {
      var one = told(cell, which), found = one ? look(data.statistics[which], one, showList.value) : "n";
      batches[found] = batches[found] || { fillColor: paint(found), shapes: [] };
      batches[found].shapes.push(cell);
    }
    hexagons.batches = Object.values(batches);
    hexagons.redraw();
    legends.forEach(function (legend) {
      legend.hidden = legend.dataset.statistic !== String(which) || legend.dataset.show !== showList.value;
    });
    if (slotRange) {
      slotRange.setAttribute("aria-valuetext", data.slots[slot()]);
      document.getElementById("slot-name").textContent = data.slots[slot()];
    }
    summarise();
    describe(picked);
    list();
  }

  function summarise() {
    var counts = data.statuses.map(function () { return 0; });
    columns["status_" + slot() + "_" + statistic()].forEach(function (status) { counts[status] += 1; });
    var parts = data.told.map(function (status, code) { return counts[code] + " " + status; });
    parts = parts.filter(function (part) { return part.charAt(0) !== "0"; }).join(", ");
    document.getElementById("summary").textContent = fill({{ _("{number} {nouns}: {parts}.") | tojson }}, { number: columns["cell_" + slot()].length, nouns: {{ nouns | tojson }}, parts: parts });
  }

  // a message with facts in its holes
  function fill(message, facts) {
    return message.replace(/\{(\w+)\}/g, function (hole, name) { return facts[name]; });
  }

  function words(cell, which) {
    var one = told(cell, which), each = data.statistics[which];
    if (!one) { return { line: {{ _("no record") | tojson }}, status: {{ _("no record in this time slot") | tojson }} }; }
    var reason = data.reasons[one.status];
    var status = reason ? fill({{ _("{status}: {reason}") | tojson }}, { status: data.told[one.status], reason: reason }) : data.told[one.status];
    if (one.value === null) { return { line: {{ _("withheld") | tojson }}, status: status, reason: status }; }
    var read = rounded(one, each.most);
    if (!read) { return { line: {{ _("unknown: anything is possible") | tojson }}, value: {{ _("unknown") | tojson }}, status: status, reason: reason && status }; }
    var found = { low: read.low, high: read.high, value: read.value, unit: each.unit };
    var line = useless(one) ? {{ _("between {low} and {high} {unit}") | tojson }} : {{ _("between {low} and {high} {unit}, most likely {value}") | tojson }};
    return {
      line: read.low === read.high ? read.value + " " + each.unit : fill(line, found), value: read.value + " " + each.unit,
      between: fill({{ _("{low} and {high} {unit}") | tojson }}, found), read: read, status: status, reason: reason && status
    };
  }

  // how often the truth lies in the interval that was just read, and in the wider one
  function sure(own, each) {
    if (!own.read || own.read.low === own.read.high) { return ""; }
    var line = each.rest ? {{ _("{often} it is between these; {rest} between {low} and {high}") | tojson }} : {{ _("{often} it is between these") | tojson }};
    return fill(line, { often: each.often, rest: each.rest, low: own.read.outerLow, high: own.read.outerHigh });
  }

  // what is likely of it beside the city, the likeliest first; nothing where little is known
  function beside(one, each) {
    if (!one || one.value === null || !each.chances || useless(one)) { return ""; }
    return [
      [one.slower, {{ _("{chance} that it is slower than the city by a fifth") | tojson }}],
      [one.faster, {{ _("{chance} that it is faster than the city by a fifth") | tojson }}],
      [Math.round(1000 * (1 - one.slower - one.faster)) / 1000, {{ _("{chance} that it is within a fifth of the city") | tojson }}]
    ].filter(function (pair) { return tenths(pair[0]); }).sort(function (pair, other) { return other[0] - pair[0]; }).map(function (pair) {
      var chance = tenths(pair[0]) > 9 ? {{ _("more than 19 in 20") | tojson }} : {{ _("{number} in 10") | tojson }};
      return fill(pair[1], { chance: fill(chance, { number: tenths(pair[0]) }) });
    }).join(", ");
  }

  // per cent of the scheduled speed; nothing where nothing is scheduled, or little is known
  function ofScheduled(one, each) {
    if (!one || !one.scheduled || useless(one)) { return ""; }
    return fill({{ _("{low} to {high} % of the scheduled {scheduled} {unit}") | tojson }}, {
      low: Math.floor(100 * one.share_low + 1e-9), high: Math.ceil(100 * one.share_high - 1e-9), scheduled: Math.round(one.scheduled), unit: each.unit
    });
  }

  function element(name, text, className) {
    var made = document.createElement(name);
    made.textContent = text;
    if (className) { made.className = className; }
    return made;
  }

  function brief(cell) {
    var own = words(cell, statistic()), box = element("div", "");
    box.append(element("b", places[cell]), document.createElement("br"), own.line);
    return box;
  }

  function describe(cell) {
    if (cell < 0) { return; }
    var which = statistic(), own = words(cell, which), lines = document.createElement("dl"), one = told(cell, which);
    var each = data.statistics[which], facts = [
      [{{ _("How sure") | tojson }}, sure(own, each)], [{{ _("Compared") | tojson }}, beside(one, each)], [{{ _("Timetable") | tojson }}, ofScheduled(one, each)], [{{ _("Status") | tojson }}, own.reason]
    ];
    data.statistics.forEach(function (other, number) {
      var said = words(cell, number);
      if (number !== which && said.between) { facts.push([other.brief, said.line]); }
    });
    [["vehicles", {{ _("Vehicles") | tojson }}], ["records", {{ _("Records") | tojson }}]].forEach(function (pair) {
      var counts = columns[pair[0] + "_" + slot()];
      if (one && counts) { facts.push([pair[1], String(counts[one.row])]); }
    });
    facts.push([{{ _("Time slot") | tojson }}, slotRange ? data.slots[slot()] : ""], [data.number, nameOf(cell)]);
    facts.forEach(function (pair) {
      if (pair[1]) { lines.append(element("dt", pair[0]), element("dd", pair[1])); }
    });
    card.replaceChildren(element("h2", places[cell]), element("p", own.line.charAt(0).toUpperCase() + own.line.slice(1), "big"), lines);
    card.classList.toggle("pinned", pinned);
  }

  // what the pointer comes to
  function point(cell) {
    if (cell === pointed) { return; }
    pointed = cell;
    hexagons.setTooltipContent(brief(cell));
    if (!pinned) { choose(cell); }
  }

  function ringsOf(cell) {
    var found = [];
    for (var ring = cells.rings[cell]; ring < cells.rings[cell + 1]; ring += 1) {
      var points = [];
      for (var k = cells.corners[ring]; k < cells.corners[ring + 1]; k += 1) { points.push([cells.lat[k], cells.lng[k]]); }
      found.push(points);
    }
    return found;
  }

  function choose(cell) {
    if (cell === picked) { return; }
    picked = cell;
    frame.setLatLngs(ringsOf(cell));
    describe(cell);
  }

  // what is clicked stays in the box, and in the address: again, or Escape, lets go of it
  function pin(cell) {
    pinned = !(pinned && cell === picked);
    choose(cell);
    describe(cell);
    // a page inside a notebook has no address of its own
    if (window.location.protocol !== "about:") { window.history.replaceState(null, "", pinned ? "#h=" + nameOf(cell) : "#"); }
  }

  function goTo(cell) {
    if (!map.getBounds().pad(-0.05).contains(middleOf(cell))) { map.panTo(middleOf(cell), { animate: false }); }
  }

  // the hexagon that the address names
  function linked() {
    var name = (window.location.hash.match(/^#h=([0-9a-f]{1,16})$/) || [])[1];
    var found = name ? places.findIndex(function (place, cell) { return nameOf(cell) === name; }) : -1;
    if (found < 0) { return; }
    pinned = false;
    pin(found);
    goTo(found);
  }

  var MOST_ROWS = 2000, MOST_FOUND = 12;
  function list() {
    var listing = document.getElementById("listing");
    if (!listing.open) { return; }
    var lines = document.createDocumentFragment(), all = Array.from(columns["cell_" + slot()]);
    all.slice(0, MOST_ROWS).forEach(function (cell) {
      var own = words(cell, statistic()), line = document.createElement("tr");
      [places[cell], own.value || own.line, own.between || "", own.status, nameOf(cell)].forEach(function (text) { line.append(element("td", text)); });
      lines.append(line);
    });
    listing.querySelector("tbody").replaceChildren(lines);
    document.getElementById("cut").hidden = all.length <= MOST_ROWS;
  }

  // what is searched: hexagons by name and by H3 index, and whatever the public layers name
  function matches(text) {
    var wanted = text.trim().toLowerCase(), found = [];
    if (!wanted) { return found; }
    known.forEach(function (each) {
      if (each.name && each.name.toLowerCase().indexOf(wanted) >= 0) { found.push({ name: each.name, bounds: each.bounds }); }
    });
    places.forEach(function (name, cell) {
      if (name.toLowerCase().indexOf(wanted) >= 0 || nameOf(cell) === wanted) { found.push({ name: name, cell: cell }); }
    });
    return found.sort(function (one, other) {
      return (other.name.toLowerCase().indexOf(wanted) === 0) - (one.name.toLowerCase().indexOf(wanted) === 0);
    });
  }
  function suggest() {
    var seen = new Set(matches(search.value).map(function (each) { return each.name; }));
    document.getElementById("found").replaceChildren.apply(document.getElementById("found"),
      Array.from(seen).slice(0, MOST_FOUND).map(function (name) {
        var option = document.createElement("option");
        option.value = name;
        return option;
      }));
  }
  function find() {
    var wanted = search.value.trim().toLowerCase(), all = matches(search.value);
    var best = all.find(function (each) { return each.name.toLowerCase() === wanted; }) || all[0];
    document.getElementById("summary").textContent = best || !wanted ? "" : fill({{ _("Nothing here is called “{name}”.") | tojson }}, { name: search.value.trim() });
    if (!best) { return; }
    if (best.cell === undefined) {
      map.fitBounds(best.bounds.pad(0.3), { animate: false, maxZoom: map.getMinZoom() + 3 });
      best.cell = nearest(best.bounds.getCenter());
    }
    pinned = false;
    pin(best.cell);
    goTo(best.cell);
    summarise();
  }
  function nearest(place) {
    var best = 0, least = Infinity;
    places.forEach(function (name, cell) {
      var far = map.distance(middleOf(cell), place);
      if (far < least) { least = far; best = cell; }
    });
    return best;
  }

  // glides there; what is asked for on the way is added to where it goes
  var aim = null, gliding = false;
  function zoom(by) {
    aim = Math.min(map.getMaxZoom(), Math.max(map.getMinZoom(), (aim === null ? map.getZoom() : aim) + by));
    if (!gliding) { map.setZoom(aim); }
    arrive();
  }
  function arrive() {
    if (!gliding && aim !== null && Math.abs(aim - map.getZoom()) < 1e-6) { aim = null; }
    container.dataset.gliding = gliding || aim !== null;
  }
  map.on("zoomstart", function () { gliding = true; arrive(); });
  map.on("zoomend", function () {
    gliding = false;
    arrive();
    if (aim !== null) { window.setTimeout(zoom, 0, 0); }
  });

  function step(right, down) {
    pinned = false;
    if (picked < 0) { choose(0); return; }
    var from = middleOf(picked), squeeze = Math.cos(from.lat * Math.PI / 180), best = -1, least = Infinity;
    places.forEach(function (name, cell) {
      var to = middleOf(cell);
      var x = (to.lng - from.lng) * squeeze, y = from.lat - to.lat;
      var along = x * right + y * down, aside = Math.abs(x * down) + Math.abs(y * right);
      if (cell === picked || along <= 0 || aside > 2 * along) { return; }
      if (along + 2 * aside < least) { least = along + 2 * aside; best = cell; }
    });
    if (best < 0) { return; }
    choose(best);
    goTo(best);
  }

  function turn(by) {
    slotRange.value = (chosen() + by + data.slots.length) % data.slots.length;
    show();
  }

  function play(on) {
    window.clearInterval(timer);
    timer = on ? window.setInterval(function () { turn(1); }, calm.matches ? 2500 : 1000) : 0;
    playButton.setAttribute("aria-pressed", String(on));
    playButton.textContent = on ? {{ _("Pause") | tojson }} : {{ _("Play") | tojson }};
  }

  function save() {
    var legend = legends.find(function (each) { return !each.hidden; }), link = document.createElement("a");
    var lines = Array.prototype.map.call(legend.querySelectorAll("li"), function (line) {
      return { letter: line.dataset.look, text: line.textContent.trim() };
    });
    var said = [document.querySelector("h1").textContent, legend.querySelector("h2").textContent];
    var foot = document.querySelector("header p").textContent.replace(/\s+/g, " ") + " " + document.getElementById("sources").textContent;
    picture(map, written(), {
      title: said[0], subtitle: said[1] + (slotRange ? ", " + data.slots[slot()] : ""), lines: lines, foot: foot.trim()
    }, paint).toBlob(function (blob) {
      link.href = URL.createObjectURL(blob);
      link.download = "map.png";
      link.click();
      window.setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
    });
  }

  var keys = {
    ArrowRight: function () { step(1, 0); }, ArrowLeft: function () { step(-1, 0); },
    ArrowDown: function () { step(0, 1); }, ArrowUp: function () { step(0, -1); },
    "+": function () { zoom(0.5); }, "=": function () { zoom(0.5); }, "-": function () { zoom(-0.5); },
    "0": fit, " ": function () { if (playButton) { play(!timer); } },
    Enter: function () { if (picked >= 0) { pin(picked); } }, Escape: function () { if (pinned) { pin(picked); } }
  };
  function listen() {
    container.addEventListener("keydown", function (event) {
      if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); keys[event.key](); }
    });
    document.getElementById("in").addEventListener("click", function () { zoom(0.5); });
    document.getElementById("out").addEventListener("click", function () { zoom(-0.5); });
    document.getElementById("all").addEventListener("click", fit);
    document.getElementById("save").addEventListener("click", save);
    document.getElementById("listing").addEventListener("toggle", list);
    search.addEventListener("input", suggest);
    search.addEventListener("change", function () {
      // a name that was chosen from the list; what is half typed waits for Enter
      if (matches(search.value).some(function (each) { return each.name === search.value; })) { find(); }
    });
    search.form.addEventListener("submit", function (event) { event.preventDefault(); find(); });
    statisticList.addEventListener("change", show);
    showList.addEventListener("change", show);
    if (slotRange) {
      slotRange.addEventListener("input", function () { play(false); show(); });
      playButton.addEventListener("click", function () { play(!timer); });
      document.getElementById("earlier").addEventListener("click", function () { play(false); turn(-1); });
      document.getElementById("later").addEventListener("click", function () { play(false); turn(1); });
    }
    map.on("resize", function () { if (map.getZoom() <= map.getMinZoom()) { fit(); } });
    window.addEventListener("hashchange", linked);
    linked();
  }
{% if live %}
{% include "map_live.js" %}
{% endif %}

  if (!window.DecompressionStream) {
    card.replaceChildren(element("p", {{ _("This browser is too old for the map (before 2023). All numbers are in cells.csv.") | tojson }}));
    return;
  }
  unpack(data.parts, document.getElementById("numbers").textContent).then(function (unpacked) {
    start(unpacked, outlines(unpacked, "", data.projection));
    listen();
{% if live %}
    watch();
{% endif %}
  });
}());
