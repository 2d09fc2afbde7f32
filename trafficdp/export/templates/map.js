(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("data").textContent);
{% include "map_data.js" %}
{% include "map_draw.js" %}
  var svg = document.getElementById("map");
  var canvas = document.getElementById("paper");
  var pick = document.getElementById("pick");
  var card = document.getElementById("card");
  var statisticList = document.getElementById("statistic");
  var showList = document.getElementById("show");
  var slotRange = document.getElementById("slot");
  var playButton = document.getElementById("play");
  var legends = Array.prototype.slice.call(document.querySelectorAll(".legend"));
  var whole = svg.getAttribute("viewBox").split(" ").map(Number);
  var calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  var box = whole.slice();
  var columns, bounds, near, brush, names, rows, letters, picked = -1, waiting = false, timer = 0;

  function start(unpacked) {
    columns = unpacked;
    var shape = outlines(columns);
    bounds = measured(shape);
    near = squares(bounds, whole[2]);
    brush = painter(canvas, svg, shape, bounds);
    names = Array.prototype.map.call(columns.h3_high, function (high, cell) {
      return (high.toString(16) + columns.h3_low[cell].toString(16).padStart(8, "0")).replace(/^0+/, "");
    });
    rows = data.slots.map(function (slot, position) {
      var found = new Map();
      columns["cell_" + position].forEach(function (cell, row) { found.set(cell, row); });
      return found;
    });
    show();
    frame();
    document.documentElement.dataset.drawn = shape.cells;
  }

  function slot() { return slotRange ? Number(slotRange.value) : 0; }
  function statistic() { return Number(statisticList.value); }

  // value, ends and status of a statistic in a cell now; null without a record
  function told(cell, which) {
    var row = rows[slot()].get(cell), stem = "_" + slot() + "_" + which;
    if (row === undefined) { return null; }
    return {
      value: number(columns["value" + stem], row), low: number(columns["low" + stem], row),
      high: number(columns["high" + stem], row), status: columns["status" + stem][row], row: row
    };
  }

  function show() {
    var which = statistic(), uncertainty = showList.value === "uncertainty";
    letters = new Array(names.length).fill("n");
    rows[slot()].forEach(function (row, cell) {
      var one = told(cell, which);
      letters[cell] = look(data.statistics[which], one.value, one.low, one.high, one.status, uncertainty);
    });
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
    repaint();
  }

  function repaint() {
    if (waiting) { return; }
    waiting = true;
    window.requestAnimationFrame(function () { waiting = false; brush.paint(letters); });
  }

  function summarise() {
    var counts = data.statuses.map(function () { return 0; });
    columns["status_" + slot() + "_" + statistic()].forEach(function (status) { counts[status] += 1; });
    var parts = data.statuses.map(function (status, code) { return counts[code] + " " + status; });
    document.getElementById("summary").textContent = rows[slot()].size + " cells: " + parts.filter(function (part) {
      return part.charAt(0) !== "0";
    }).join(", ") + ".";
  }

  function words(cell, which) {
    var one = told(cell, which), unit = data.statistics[which].unit;
    if (!one) { return { value: "no record", interval: "", status: "no record in this time slot" }; }
    var reason = data.reasons[one.status];
    var status = data.statuses[one.status] + (reason ? ": " + reason : "");
    if (one.value === null) { return { value: "withheld", interval: "", status: status }; }
    return { value: one.value + " " + unit, interval: one.low + " to " + one.high + " " + unit, status: status };
  }

  function element(name, text, className) {
    var made = document.createElement(name);
    made.textContent = text;
    if (className) { made.className = className; }
    return made;
  }

  function describe(cell) {
    if (cell < 0) { return; }
    var which = statistic(), own = words(cell, which), lines = document.createElement("dl"), one = told(cell, which);
    var facts = [["Interval", own.interval && own.interval + " (" + data.level + " %)"], ["Status", own.status]];
    data.statistics.forEach(function (other, number) {
      var said = words(cell, number);
      if (number !== which && said.interval) { facts.push([other.brief, said.value + ", interval " + said.interval]); }
    });
    ["vehicles", "records"].forEach(function (name) {
      var counts = columns[name + "_" + slot()];
      if (one && counts) { facts.push([name.charAt(0).toUpperCase() + name.slice(1), String(counts[one.row])]); }
    });
    facts.push(["Time slot", slotRange ? data.slots[slot()] : ""], ["H3", names[cell]]);
    facts.forEach(function (pair) {
      if (pair[1]) { lines.append(element("dt", pair[0]), element("dd", pair[1])); }
    });
    card.replaceChildren(element("h2", "Cell"), element("p", own.value, "big"), lines);
  }

  function choose(cell) {
    if (cell === picked) { return; }
    picked = cell;
    pick.setAttribute("d", brush.path(cell));
    describe(cell);
  }

  var MOST_ROWS = 2000;
  function list() {
    var listing = document.getElementById("listing");
    if (!listing.open) { return; }
    var lines = document.createDocumentFragment(), all = Array.from(rows[slot()].keys());
    all.slice(0, MOST_ROWS).forEach(function (cell) {
      var own = words(cell, statistic()), line = document.createElement("tr");
      line.append(element("td", names[cell]), element("td", own.value), element("td", own.interval),
        element("td", own.status));
      lines.append(line);
    });
    listing.querySelector("tbody").replaceChildren(lines);
    document.getElementById("cut").hidden = all.length <= MOST_ROWS;
  }

  function frame() {
    svg.setAttribute("viewBox", box.join(" "));
    svg.classList.toggle("zoomed", box[2] < whole[2]);
    measure();
    repaint();
  }

  function measure() {
    var bar = document.getElementById("bar"), matrix = svg.getScreenCTM();
    if (bar && matrix) { bar.firstChild.style.width = Math.min(bar.dataset.length * matrix.a, svg.clientWidth - 40) + "px"; }
  }

  // zooms by a factor; the point of the drawing at (x, y) stays where it is
  function zoom(factor, x, y) {
    var width = Math.min(whole[2], Math.max(whole[2] / 64, box[2] / factor)), share = width / box[2];
    x = x === undefined ? box[0] + box[2] / 2 : x;
    y = y === undefined ? box[1] + box[3] / 2 : y;
    box = [x - (x - box[0]) * share, y - (y - box[1]) * share, width, width * whole[3] / whole[2]];
    move(0, 0);
  }

  function move(right, down) {
    box[0] = Math.min(Math.max(box[0] + right, 0), whole[2] - box[2]);
    box[1] = Math.min(Math.max(box[1] + down, 0), whole[3] - box[3]);
    frame();
  }

  function middle(cell) {
    return [(bounds.left[cell] + bounds.right[cell]) / 2, (bounds.top[cell] + bounds.bottom[cell]) / 2];
  }

  function step(right, down) {
    if (picked < 0) { choose(0); return; }
    var from = middle(picked), best = -1, least = Infinity;
    for (var cell = 0; cell < names.length; cell += 1) {
      var to = middle(cell), x = to[0] - from[0], y = to[1] - from[1];
      var along = x * right + y * down, aside = Math.abs(x * down) + Math.abs(y * right);
      if (cell === picked || along <= 0 || aside > 2 * along) { continue; }
      if (along + 2 * aside < least) { least = along + 2 * aside; best = cell; }
    }
    if (best < 0) { return; }
    choose(best);
    var there = middle(best);
    if (there[0] < box[0] || there[0] > box[0] + box[2] || there[1] < box[1] || there[1] > box[1] + box[3]) {
      move(there[0] - box[0] - box[2] / 2, there[1] - box[1] - box[3] / 2);
    }
  }

  function place(event) {
    var point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [point.x, point.y];
  }

  function at(event) {
    var point = place(event);
    return near(point[0], point[1]).find(function (cell) { return brush.inside(cell, point[0], point[1]); });
  }

  function turn(by) {
    slotRange.value = (slot() + by + data.slots.length) % data.slots.length;
    show();
  }

  function play(on) {
    window.clearInterval(timer);
    timer = on ? window.setInterval(function () { turn(1); }, calm.matches ? 2500 : 1000) : 0;
    playButton.setAttribute("aria-pressed", String(on));
    playButton.textContent = on ? "Pause" : "Play";
  }

  var keys = {
    ArrowRight: function () { step(1, 0); }, ArrowLeft: function () { step(-1, 0); },
    ArrowDown: function () { step(0, 1); }, ArrowUp: function () { step(0, -1); },
    "+": function () { zoom(1.5); }, "=": function () { zoom(1.5); }, "-": function () { zoom(1 / 1.5); },
    "0": function () { box = whole.slice(); frame(); }, " ": function () { if (playButton) { play(!timer); } }
  };
  function listen() {
    svg.addEventListener("keydown", function (event) {
      if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); keys[event.key](); }
    });
    svg.addEventListener("pointermove", function (event) {
      if (event.buttons & 1 && box[2] < whole[2]) {
        var matrix = svg.getScreenCTM();
        move(-event.movementX / matrix.a, -event.movementY / matrix.d);
      } else if (!event.buttons) {
        var cell = at(event);
        if (cell !== undefined) { choose(cell); }
      }
    });
    svg.addEventListener("click", function (event) {
      var cell = at(event);
      if (cell !== undefined) { choose(cell); }
    });
    svg.addEventListener("dblclick", function (event) { var point = place(event); zoom(2, point[0], point[1]); });
    svg.addEventListener("wheel", function (event) {
      if (!event.ctrlKey && !event.metaKey) { return; }
      event.preventDefault();
      var point = place(event);
      zoom(event.deltaY < 0 ? 1.25 : 0.8, point[0], point[1]);
    }, { passive: false });
    document.getElementById("in").addEventListener("click", function () { zoom(1.5); });
    document.getElementById("out").addEventListener("click", function () { zoom(1 / 1.5); });
    document.getElementById("all").addEventListener("click", keys["0"]);
    document.getElementById("listing").addEventListener("toggle", list);
    statisticList.addEventListener("change", show);
    showList.addEventListener("change", show);
    if (slotRange) {
      slotRange.addEventListener("input", function () { play(false); show(); });
      playButton.addEventListener("click", function () { play(!timer); });
      document.getElementById("earlier").addEventListener("click", function () { play(false); turn(-1); });
      document.getElementById("later").addEventListener("click", function () { play(false); turn(1); });
    }
    window.addEventListener("resize", function () { measure(); repaint(); });
  }
{% if live %}
{% include "map_live.js" %}
{% endif %}

  if (!window.DecompressionStream) {
    card.replaceChildren(element("p", "This browser is too old for the map (before 2023). All numbers are in cells.csv."));
    return;
  }
  unpack(data.parts, document.getElementById("numbers").textContent).then(function (unpacked) {
    start(unpacked);
    listen();
{% if live %}
    watch();
{% endif %}
  });
}());
