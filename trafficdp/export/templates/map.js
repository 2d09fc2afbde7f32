(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("data").textContent);
  var svg = document.getElementById("map");
  var paths = Array.prototype.slice.call(document.getElementById("cells").children);
  var pick = document.getElementById("pick");
  var card = document.getElementById("card");
  var statisticList = document.getElementById("statistic");
  var slotList = document.getElementById("slot");
  var legends = Array.prototype.slice.call(document.querySelectorAll(".legend"));
  var tip = document.createElementNS(svg.namespaceURI, "title");
  var view, numbers, place, unit, picked = -1;
  var whole = svg.getAttribute("viewBox").split(" ").map(Number);
  var box = whole.slice();

  paths.forEach(function (path, cell) { path.cell = cell; });

  function show() {
    var statistic = Number(statisticList.value);
    view = data.views[slotList ? Number(slotList.value) : 0];
    numbers = view.statistics[statistic];
    place = new Map(view.bins.map(function (cell, row) { return [cell, row]; }));
    unit = legends[statistic].querySelector("h2").textContent.split(", ").pop();
    paths.forEach(function (path, cell) { path.setAttribute("class", "k" + numbers.letters[cell]); });
    legends.forEach(function (legend, number) { legend.hidden = number !== statistic; });
    summarise();
    describe(picked);
    list();
    document.documentElement.dataset.drawn = paths.length;
  }

  function summarise() {
    var counts = data.statuses.map(function () { return 0; });
    numbers.status.forEach(function (status) { counts[status] += 1; });
    var parts = data.statuses.map(function (status, code) { return counts[code] + " " + status; });
    document.getElementById("summary").textContent = view.bins.length + " cells: " + parts.filter(function (part) {
      return part.charAt(0) !== "0";
    }).join(", ") + ".";
  }

  function facts(cell) {
    var row = place.get(cell);
    if (row === undefined) { return { value: "no record", interval: "", status: "no record in this time slot" }; }
    var status = numbers.status[row];
    var reason = data.reasons[status];
    var words = data.statuses[status] + (reason ? ": " + reason : "");
    if (numbers.value[row] === null) { return { value: "withheld", interval: "", status: words }; }
    return {
      value: numbers.value[row] + " " + unit,
      interval: numbers.low[row] + " to " + numbers.high[row] + " " + unit,
      status: words
    };
  }

  function element(name, text, className) {
    var made = document.createElement(name);
    made.textContent = text;
    if (className) { made.className = className; }
    return made;
  }

  function describe(cell) {
    if (cell < 0) { return; }
    var told = facts(cell);
    var names = document.createElement("dl");
    [["Interval", told.interval && told.interval + " (" + data.level + " %)"], ["Status", told.status],
      ["Time slot", slotList ? slotList.options[slotList.selectedIndex].text : ""], ["H3", data.cells[cell]]
    ].forEach(function (pair) {
      if (pair[1]) { names.append(element("dt", pair[0]), element("dd", pair[1])); }
    });
    card.replaceChildren(element("h2", "Cell"), element("p", told.value, "big"), names);
  }

  function choose(cell) {
    picked = cell;
    pick.setAttribute("d", paths[cell].getAttribute("d"));
    describe(cell);
  }

  function list() {
    var listing = document.getElementById("listing");
    if (!listing.open) { return; }
    var body = listing.querySelector("tbody");
    var rows = document.createDocumentFragment();
    view.bins.forEach(function (cell) {
      var told = facts(cell), line = document.createElement("tr");
      line.append(element("td", data.cells[cell]), element("td", told.value), element("td", told.interval),
        element("td", told.status));
      rows.append(line);
    });
    body.replaceChildren(rows);
  }

  function frame() {
    svg.setAttribute("viewBox", box.join(" "));
    svg.classList.toggle("zoomed", box[2] < whole[2]);
    measure();
  }

  function measure() {
    var bar = document.getElementById("bar");
    if (!bar) { return; }
    var matrix = svg.getScreenCTM();
    if (matrix) { bar.firstChild.style.width = Math.min(bar.dataset.length * matrix.a, svg.clientWidth - 40) + "px"; }
  }

  function zoom(factor) {
    var width = Math.min(whole[2], Math.max(whole[2] / 64, box[2] / factor));
    var height = width * whole[3] / whole[2];
    box = [box[0] + (box[2] - width) / 2, box[1] + (box[3] - height) / 2, width, height];
    move(0, 0);
  }

  function move(right, down) {
    box[0] = Math.min(Math.max(box[0] + right, 0), whole[2] - box[2]);
    box[1] = Math.min(Math.max(box[1] + down, 0), whole[3] - box[3]);
    frame();
  }

  function centre(path) {
    var bounds = path.getBBox();
    return [bounds.x + bounds.width / 2, bounds.y + bounds.height / 2];
  }

  function step(right, down) {
    if (picked < 0) { choose(0); return; }
    var from = centre(paths[picked]), best = -1, least = Infinity;
    paths.forEach(function (path, cell) {
      var to = centre(path), x = to[0] - from[0], y = to[1] - from[1];
      var along = x * right + y * down, aside = Math.abs(x * down) + Math.abs(y * right);
      if (cell === picked || along <= 0 || aside > 2 * along) { return; }
      if (along + 2 * aside < least) { least = along + 2 * aside; best = cell; }
    });
    if (best >= 0) { choose(best); }
  }

  var keys = {
    ArrowRight: function () { step(1, 0); }, ArrowLeft: function () { step(-1, 0); },
    ArrowDown: function () { step(0, 1); }, ArrowUp: function () { step(0, -1); },
    "+": function () { zoom(1.5); }, "=": function () { zoom(1.5); }, "-": function () { zoom(1 / 1.5); }
  };
  svg.addEventListener("keydown", function (event) {
    if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); keys[event.key](); }
  });
  svg.addEventListener("pointerover", function (event) {
    var cell = event.target.cell;
    if (cell === undefined || event.buttons) { return; }
    choose(cell);
    var told = facts(cell);
    tip.textContent = [told.value, told.interval, told.status].filter(Boolean).join("; ");
    event.target.append(tip);
  });
  svg.addEventListener("click", function (event) {
    if (event.target.cell !== undefined) { choose(event.target.cell); }
  });
  svg.addEventListener("pointermove", function (event) {
    if (!(event.buttons & 1) || box[2] >= whole[2]) { return; }
    var matrix = svg.getScreenCTM();
    move(-event.movementX / matrix.a, -event.movementY / matrix.d);
  });
  document.getElementById("in").addEventListener("click", function () { zoom(1.5); });
  document.getElementById("out").addEventListener("click", function () { zoom(1 / 1.5); });
  document.getElementById("all").addEventListener("click", function () { box = whole.slice(); frame(); });
  document.getElementById("listing").addEventListener("toggle", list);
  statisticList.addEventListener("change", show);
  if (slotList) {
    slotList.addEventListener("change", show);
    [["earlier", -1], ["later", 1]].forEach(function (pair) {
      document.getElementById(pair[0]).addEventListener("click", function () {
        var count = slotList.options.length;
        slotList.selectedIndex = (slotList.selectedIndex + pair[1] + count) % count;
        show();
      });
    });
  }
  window.addEventListener("resize", measure);
  show();
  frame();
}());
