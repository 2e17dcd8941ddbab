// The report's page: draws what the embedded JSON says. Texts of the model enter the page as text nodes only.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const style = name =>
  getComputedStyle(document.documentElement)
    .getPropertyValue("--" + name)
    .trim();
const make = (tag, attributes = {}, ...children) => {
  const svg = ["svg", "circle", "line", "path", "text", "g"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes))
    key.startsWith("on") ? node.addEventListener(key.slice(2), value) : node.setAttribute(key, value);
  node.append(...children);
  return node;
};
// Colours by number: eight hues, then these darker and lighter, so that no two of the first 24 are alike.
const colour = i =>
  `hsl(${(210 + 135 * i) % 360} 60% ${parseFloat(style("tone")) + [0, -18, 18][Math.floor(i / 8) % 3]}%)`;
const tip = document.body.appendChild(make("div", { id: "tip" }));
const showTip = (event, text) => {
  if (!text) {
    tip.style.display = "none";
    return;
  }
  tip.textContent = text;
  tip.style.display = "block";
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
};
const number = (x, digits = 4) => {
  const rounded = +x.toPrecision(digits);
  return Math.abs(rounded) >= 1000 ? rounded.toLocaleString("en") : rounded + "";
};
// Round steps for an axis, about `count` of them.
const roundStep = (range, count, base = 10) => {
  const least = range / count,
    power = base ** Math.floor(Math.log(least) / Math.log(base));
  return (base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
    .map(n => n * power)
    .find(s => s >= least);
};
const time = us => {
  if (us === 0) return "0";
  for (const [unit, size] of [
    ["s", 1e6],
    ["ms", 1e3],
    ["us", 1],
  ])
    if (Math.abs(us) >= size) return number(us / size) + " " + unit;
  return number(us * 1e3) + " ns";
};
const bytes = n => {
  if (n === 0) return "0";
  for (const [unit, size] of [
    ["TiB", 2 ** 40],
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ])
    if (n >= size) return number(n / size) + " " + unit;
  return n + " bytes";
};
const percent = x => (100 * x).toFixed(1) + "%";
const card = (title, ...children) =>
  document.body.insertBefore(make("section", {}, make("h2", {}, title), ...children), tip);
const bar = shares =>
  make(
    "div",
    { class: "bar" },
    ...Object.entries(shares).map(([kind, share]) =>
      make("i", {
        style: `width:${100 * share}%;background:var(--${kind})`,
        onmousemove: e => showTip(e, `${kind} ${percent(share)}`),
        onmouseleave: e => showTip(e),
      }),
    ),
  );
const keys = (...names) =>
  make(
    "p",
    { class: "keys soft" },
    ...names.map(([colour, name]) => make("span", {}, make("i", { style: `background:var(--${colour})` }), name)),
  );

// A table that sorts by the column that is clicked. Columns: {name, value(row), show(row) -> text or node, text}.
function table(columns, rows, options = {}) {
  const body = make("tbody");
  const nodes = new Map();
  let sorted = null,
    down = false;
  const fill = () =>
    body.replaceChildren(
      ...rows.map(row => {
        if (!nodes.has(row))
          nodes.set(
            row,
            make(
              "tr",
              { class: options.kind ? options.kind(row) : "", onclick: () => options.choose && options.choose(row) },
              ...columns.map(c =>
                make("td", c.text ? { class: "text" } : {}, c.show ? c.show(row) : String(c.value(row))),
              ),
            ),
          );
        return nodes.get(row);
      }),
    );
  const head = columns.map(c =>
    make(
      "th",
      {
        class: c.text ? "text" : "",
        title: "sort",
        onclick: () => {
          down = sorted === c ? !down : !c.text;
          sorted = c;
          rows = [...rows].sort((a, b) => {
            const x = c.value(a),
              y = c.value(b);
            return (x > y ? 1 : x < y ? -1 : 0) * (down ? -1 : 1);
          });
          const arrow = down ? " ↓" : " ↑";
          head.forEach((th, i) => (th.textContent = columns[i].name + (columns[i] === c ? arrow : "")));
          fill();
        },
      },
      c.name,
    ),
  );
  fill();
  return {
    node: make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...head)), body)),
    nodes,
  };
}

function plans(search) {
  let chosen = null;
  const circles = new Map(),
    shown = search.plans.filter(p => p.latency !== null);
  const choose = plan => {
    for (const map of [circles, list.nodes]) {
      map.get(chosen)?.classList.remove("chosen");
      map.get(plan)?.classList.add("chosen");
    }
    chosen = plan;
    list.nodes.get(plan)?.scrollIntoView({ block: "nearest" });
    details.replaceChildren(...describe(plan));
  };
  // What a point or a row opens: the plan's figures, and the command that writes its program.
  const describe = p => {
    const command = (data.facts ?? []).find(([name]) => name === "command")?.[1];
    const parts = [make("h2", {}, `${p.rank ? `Plan ${p.rank}: ` : ""}${label(p)}`)];
    if (p.latency !== null)
      parts.push(
        make(
          "p",
          {},
          [
            `${number(p.throughput)} samples/s`,
            p.tokens ? `${Math.round(p.tokens).toLocaleString("en")} tokens/s` : "",
            p.mfu ? `MFU ${percent(p.mfu)}` : "",
            time(p.latency),
            bytes(p.peak),
          ]
            .filter(Boolean)
            .join(" · "),
        ),
        bar(p.shares),
      );
    const along = shares =>
      Object.entries(shares)
        .filter(([, share]) => share >= 5e-4)
        .map(([axis, share]) => `${axis} ${percent(share)}`)
        .join(", ");
    for (const [name, shares] of [
      ["communication that shows", p.exposed],
      ["hidden communication", p.hidden],
    ])
      if (along(shares)) parts.push(make("p", { class: "soft" }, `${name}: ${along(shares)}`));
    if (p.dropped) parts.push(make("p", { class: "soft" }, p.dropped));
    if (command && p.rank)
      parts.push(
        make("p", { class: "soft" }, "To write its program: "),
        make("pre", {}, `${command} --row ${p.rank} -o plan.mlir`),
      );
    return parts;
  };
  const label = p =>
    `batch ${p.batch}  D=${p.dp}` +
    (p.dp_replicate > 1 ? ` R=${p.dp_replicate}` : "") +
    (p.cp > 1 ? ` C=${p.cp}` : "") +
    ` T=${p.tp} P=${p.pp} K=${p.k}` +
    (p.pp > 1 ? ` ${p.schedule}` : "");
  const W = Math.min(1300, Math.max(320, innerWidth - (innerWidth < 600 ? 44 : 110))),
    H = innerWidth < 600 ? 300 : 380,
    left = 62,
    bottom = 40,
    right = 22,
    top = 10;
  const least = Math.min(...shown.map(p => p.peak)),
    largest = Math.max(...shown.map(p => p.peak), 1),
    limit = search.limit <= 4 * largest ? search.limit : 0;
  const far = largest > 20 * least,
    scale = far ? Math.log2 : m => m; // bytes go over more than a factor of 20: logarithmic
  const low = far ? scale(least * 0.9) : 0,
    high = scale(Math.max(largest, limit) * (far ? 1.1 : 1.04));
  const x = m => left + ((W - left - right) * (scale(m) - low)) / (high - low || 1);
  const most = Math.max(...shown.map(p => p.throughput)) * 1.05 || 1,
    y = s => H - bottom - ((H - bottom - top) * s) / most;
  const colours = {
    D: "#3b78b8",
    T: "#e0872e",
    P: "#3f9b58",
    DT: "#b85fa8",
    DP: "#2aa3a3",
    TP: "#b59a1f",
    DTP: "#c94b4b",
    "": "#777",
  };
  const kindOf = p => (p.dp * p.cp > 1 ? "D" : "") + (p.tp > 1 ? "T" : "") + (p.pp > 1 ? "P" : "");
  const plot = make("svg", { viewBox: `0 0 ${W} ${H}` });
  const rise = roundStep(most, H / 60),
    across = far ? Math.max(1, Math.ceil((high - low) / (W / 110))) : roundStep(high, W / 110, 1024);
  for (let s = 0; s <= most; s += rise)
    plot.append(
      make("line", { class: "axis", x1: left, x2: W - right, y1: y(s), y2: y(s) }),
      make("text", { x: left - 6, y: y(s) + 4, "text-anchor": "end" }, number(s)),
    );
  for (let m = far ? Math.ceil(low) : 0; m <= high; m += across)
    plot.append(
      make("text", { x: x(far ? 2 ** m : m), y: H - bottom + 16, "text-anchor": "middle" }, bytes(far ? 2 ** m : m)),
    );
  plot.append(
    make(
      "text",
      { x: (W + left) / 2, y: H - 6, "text-anchor": "middle" },
      `peak memory of a device${far ? " (logarithmic)" : ""}`,
    ),
    make(
      "text",
      { x: 12, y: (H - bottom) / 2, transform: `rotate(-90 12 ${(H - bottom) / 2})`, "text-anchor": "middle" },
      "samples per second",
    ),
  );
  if (limit && scale(limit) >= low)
    plot.append(
      make("line", {
        x1: x(search.limit),
        x2: x(search.limit),
        y1: top,
        y2: H - bottom,
        stroke: "var(--accent)",
        "stroke-dasharray": "5 4",
      }),
      make("text", { x: x(search.limit) - 5, y: top + 10, "text-anchor": "end" }, "memory limit"),
    );
  plot.append(
    make("path", {
      d: search.front.map(([m, s], i) => (i ? `H${x(m)}V${y(s)}` : `M${x(m)} ${y(s)}`)).join(""),
      fill: "none",
      stroke: "var(--soft)",
      "stroke-width": 1.5,
    }),
  );
  for (const p of shown) {
    const circle = make("circle", {
      cx: x(p.peak),
      cy: y(p.throughput),
      r: p.rank === 1 ? 7 : 4.5,
      fill: colours[kindOf(p)],
      opacity: p.dropped ? 0.35 : 0.9,
      onclick: () => choose(p),
      onmousemove: e =>
        showTip(
          e,
          [label(p), `${number(p.throughput)} samples/s, ${time(p.latency)}`, bytes(p.peak), p.dropped]
            .filter(Boolean)
            .join("\n"),
        ),
      onmouseleave: e => showTip(e),
    });
    circles.set(p, circle);
    plot.append(circle);
  }
  const kinds = [...new Set(shown.map(kindOf))].sort();
  const legend = make(
    "p",
    { class: "keys soft" },
    ...kinds.map(k =>
      make("span", {}, make("i", { style: `background:${colours[k]}` }), [...k].join("/") || "one device"),
    ),
    make("span", { class: "words" }, "faint: does not fit · line: the Pareto front · large: the fastest"),
  );
  const details = make("div", { class: "details" });
  const list = table(
    [
      { name: "rank", value: p => p.rank ?? 1e9, show: p => (p.rank ? String(p.rank) : "") },
      { name: "batch", value: p => p.batch },
      { name: "D", value: p => p.dp },
      ...(shown.some(p => p.dp_replicate > 1) ? [{ name: "R", value: p => p.dp_replicate }] : []),
      ...(shown.some(p => p.cp > 1) ? [{ name: "C", value: p => p.cp }] : []),
      { name: "T", value: p => p.tp },
      { name: "P", value: p => p.pp },
      { name: "K", value: p => p.k },
      { name: "schedule", value: p => p.schedule, show: p => (p.pp > 1 ? p.schedule : "-"), text: true },
      ...(shown.some(p => p.recompute !== "none") ? [{ name: "recompute", value: p => p.recompute, text: true }] : []),
      { name: "samples/s", value: p => p.throughput, show: p => (p.latency === null ? "" : number(p.throughput)) },
      ...(shown.some(p => p.tokens)
        ? [
            {
              name: "tokens/s",
              value: p => p.tokens ?? 0,
              show: p => (p.tokens ? Math.round(p.tokens).toLocaleString("en") : ""),
            },
          ]
        : []),
      ...(shown.some(p => p.mfu)
        ? [{ name: "MFU", value: p => p.mfu ?? 0, show: p => (p.mfu ? percent(p.mfu) : "") }]
        : []),
      {
        name: "comm",
        value: p => p.shares?.communication ?? 0,
        show: p => (p.shares ? percent(p.shares.communication) : ""),
      },
      { name: "bubble", value: p => p.shares?.idle ?? 0, show: p => (p.shares ? percent(p.shares.idle) : "") },
      { name: "latency", value: p => p.latency ?? Infinity, show: p => (p.latency === null ? "" : time(p.latency)) },
      { name: "peak memory", value: p => p.peak ?? Infinity, show: p => (p.peak === null ? "" : bytes(p.peak)) },
      {
        name: "devices' time",
        value: p => p.shares?.compute ?? 0,
        show: p => (p.shares ? bar(p.shares) : ""),
        text: true,
      },
      ...(search.plans.some(p => p.dropped) ? [{ name: "out because", value: p => p.dropped ?? "", text: true }] : []),
    ],
    search.plans,
    { kind: p => (p.dropped ? "dropped" : ""), choose },
  );
  card("All plans: throughput against memory", plot, legend, details);
  card(
    "Plans",
    make("p", { class: "soft" }, "Click a row or a point for its figures and command."),
    keys(["compute", "compute"], ["communication", "communication that shows"], ["idle", "bubble"]),
    list.node,
  );
  if (shown.length) choose(shown[0]);
}

// One view of time that the timeline and the memory share.
const view = { from: 0, to: 1, listeners: [] };
const moveView = (from, to) => {
  const end = data.run.makespan,
    least = Math.max(end * 1e-7, 1e-6),
    span = Math.min(Math.max(to - from, least), end);
  view.from = Math.min(Math.max(from, 0), end - span);
  view.to = view.from + span;
  view.listeners.forEach(draw => draw());
};
function timed(canvas, draw, describe) {
  let dragging = null;
  const at = event => {
    const box = canvas.getBoundingClientRect();
    return view.from + ((event.clientX - box.left - GUTTER) / (box.width - GUTTER)) * (view.to - view.from);
  };
  canvas.addEventListener(
    "wheel",
    event => {
      if (
        !event.ctrlKey &&
        !event.metaKey &&
        !event.shiftKey &&
        Math.abs(event.deltaX) < Math.abs(event.deltaY) &&
        !canvas.matches(":focus")
      )
        return;
      event.preventDefault();
      const middle = at(event);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = (event.deltaX / 800) * (view.to - view.from);
        moveView(view.from + by, view.to + by);
        return;
      }
      const factor = Math.exp(event.deltaY / 400);
      moveView(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
    },
    { passive: false },
  );
  canvas.tabIndex = 0;
  canvas.addEventListener("pointerdown", event => {
    canvas.focus({ preventScroll: true });
    dragging = { x: event.clientX, from: view.from, to: view.to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => (dragging = null));
  canvas.addEventListener("pointermove", event => {
    if (dragging) {
      const by = ((dragging.x - event.clientX) / (canvas.clientWidth - GUTTER)) * (dragging.to - dragging.from);
      moveView(dragging.from + by, dragging.to + by);
      return;
    }
    showTip(event, describe(at(event), event.offsetY));
  });
  canvas.addEventListener("pointerleave", event => showTip(event));
  canvas.addEventListener("dblclick", () => moveView(0, data.run.makespan));
  canvas.addEventListener("keydown", event => {
    const span = view.to - view.from,
      step = { ArrowLeft: -0.2, ArrowRight: 0.2, a: -0.2, d: 0.2 }[event.key];
    if (step) moveView(view.from + step * span, view.to + step * span);
    else if (event.key === "w" || event.key === "+") moveView(view.from + span * 0.2, view.to - span * 0.2);
    else if (event.key === "s" || event.key === "-") moveView(view.from - span * 0.3, view.to + span * 0.3);
    else return;
    event.preventDefault();
  });
  view.listeners.push(draw);
}
const GUTTER = innerWidth < 600 ? 64 : 96;
function prepare(canvas, height) {
  const ratio = devicePixelRatio || 1,
    width = canvas.clientWidth || 1000;
  canvas.style.height = height + "px";
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = "11px system-ui, sans-serif";
  g.textBaseline = "middle";
  return { g, width, x: t => GUTTER + ((t - view.from) / (view.to - view.from)) * (width - GUTTER) };
}
function ruler(g, width, height, x) {
  const step = roundStep(view.to - view.from, Math.max(2, (width - GUTTER) / 110));
  g.textAlign = "center";
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    g.fillStyle = style("line");
    g.fillRect(x(t), 16, 1, height - 16);
    g.fillStyle = style("soft");
    g.fillText(time(t), Math.min(Math.max(x(t), GUTTER + 20), width - 24), 7);
  }
}

function timeline(run) {
  const rows = []; // a row per stream, with a lane per depth of calls
  run.streams.forEach((stream, index) =>
    rows.push({ name: stream, place: run.places[index], index, lanes: 1, spans: [], path: [] }),
  );
  run.spans.forEach((s, i) => {
    const row = rows[s[0]];
    row.spans.push(i);
    row.lanes = Math.max(row.lanes, s[5] + 1);
  });
  run.critical.forEach(c => rows[c[0]].path.push(c));
  const LANE = rows.length > 24 ? 9 : 15,
    GAP = 5;
  let offset = 20;
  for (const row of rows) {
    row.top = offset;
    offset += row.lanes * LANE + GAP;
  }
  const canvas = make("canvas");
  // Calls of stages have the colour of their phase.
  const phases = run.names.map(n => /^(forward|backward|weights|update)_/.exec(n)?.[1] ?? "call");
  const classOf = s =>
    run.kinds[s[4]] === "call" ? phases[s[3]] : run.compute.includes(run.kinds[s[4]]) ? "compute" : "communication";
  const present = new Set(run.spans.map(classOf));
  const firstAfter = (row, t) => {
    let low = 0,
      high = row.spans.length;
    while (low < high) {
      const m = (low + high) >> 1;
      run.spans[row.spans[m]][1] < t ? (low = m + 1) : (high = m);
    }
    return low;
  };
  for (const row of rows) {
    row.spans.sort((a, b) => run.spans[a][1] - run.spans[b][1] || run.spans[a][5] - run.spans[b][5]);
    row.longest = row.spans.reduce((m, i) => Math.max(m, run.spans[i][2]), 0);
  }
  const visible = function* (row) {
    for (
      let i = firstAfter(row, view.from - row.longest);
      i < row.spans.length && run.spans[row.spans[i]][1] <= view.to;
      i++
    )
      yield run.spans[row.spans[i]];
  };
  const draw = () => {
    const { g, width, x } = prepare(canvas, offset + 6);
    ruler(g, width, offset, x);
    const palette = Object.fromEntries([...present].map(k => [k, style(k)])),
      ink = style("ink"),
      page = style("card"),
      accent = style("accent");
    for (const row of rows) {
      const ends = new Float64Array(row.lanes).fill(-1);
      for (const s of visible(row)) {
        const a = Math.max(x(s[1]), GUTTER),
          b = Math.min(x(s[1] + s[2]), width);
        if (b < ends[s[5]] + 0.3 || b <= GUTTER) continue; // already painted at this zoom
        g.globalAlpha = found && !found.has(s) ? 0.2 : 1;
        g.fillStyle = palette[classOf(s)];
        g.fillRect(a, row.top + s[5] * LANE, Math.max(b - a - (b - a > 3 ? 0.7 : 0), 0.5), LANE - 1.5);
        ends[s[5]] = found && !found.has(s) ? ends[s[5]] : b;
        if (b - a > 34 && LANE > 10) {
          g.fillStyle = run.kinds[s[4]] === "call" ? ink : "#fff";
          g.textAlign = "left";
          g.save();
          g.beginPath();
          g.rect(a, row.top + s[5] * LANE, b - a - 2, LANE);
          g.clip();
          g.fillText(run.names[s[3]], a + 4, row.top + s[5] * LANE + LANE / 2 - 0.5);
          g.restore();
        }
      }
      g.globalAlpha = 1;
      g.fillStyle = accent;
      let end = -1;
      for (const [, start, duration] of row.path) {
        const a = Math.max(x(start), GUTTER),
          b = Math.min(x(start + duration), width);
        if (b > a && b > end + 0.3) {
          g.fillRect(a, row.top + row.lanes * LANE - 0.5, Math.max(b - a, 0.5), 2.5);
          end = b;
        }
      }
      g.fillStyle = page;
      g.fillRect(0, row.top - 2, GUTTER - 2, row.lanes * LANE + GAP);
      g.fillStyle = style("soft");
      g.textAlign = "right";
      g.fillText(row.name, GUTTER - 8, row.top + (row.lanes * LANE) / 2);
    }
  };
  const describe = (t, y) => {
    const row = rows.find(r => y >= r.top && y < r.top + r.lanes * LANE + GAP);
    if (!row || t < view.from) return "";
    const slack = (view.to - view.from) / 1500,
      lane = Math.min(row.lanes - 1, Math.floor((y - row.top) / LANE));
    let best = null;
    for (const s of visible(row))
      if (s[1] - slack <= t && t <= s[1] + s[2] + slack && s[5] <= lane && (!best || s[5] >= best[5])) best = s;
    if (!best) return `${row.name} waits at ${time(t)}`;
    const [, start, duration, name, kind, , path] = best;
    return [
      run.names[name],
      row.name + (row.place ? ` (${row.place})` : ""),
      run.paths[path] && "in " + run.paths[path],
      `${run.kinds[kind].replace("_", " ")} · ${time(duration)} · from ${time(start)} to ${time(start + duration)}`,
    ]
      .filter(Boolean)
      .join("\n");
  };
  // Search: what does not match is faint; Enter goes from one match to the next.
  let found = null,
    matches = [],
    next = 0;
  const result = make("span", { class: "soft" });
  const look = text => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean),
      fits = texts =>
        texts.map(t => {
          const low = t.toLowerCase();
          return words.filter(w => low.includes(w));
        });
    const [names, kinds, paths] = [run.names, run.kinds, run.paths].map(fits);
    matches = words.length
      ? run.spans.filter(s => new Set([...names[s[3]], ...kinds[s[4]], ...paths[s[6]]]).size === words.length)
      : [];
    found = words.length ? new Set(matches) : null;
    next = 0;
    result.textContent = words.length
      ? ` ${matches.length.toLocaleString("en")} of ${run.spans.length.toLocaleString("en")}` +
        (matches.length ? `, together ${time(matches.reduce((sum, s) => sum + s[2], 0))}` : "")
      : "";
    draw();
  };
  const go = () => {
    if (!matches.length) return;
    const s = matches[next++ % matches.length],
      half = Math.max(2 * s[2], run.makespan / 2000);
    moveView(s[1] + s[2] / 2 - half, s[1] + s[2] / 2 + half);
  };
  const field = make("input", {
    type: "search",
    placeholder: "search: allreduce, forward_0, a module",
    "aria-label": "search the timeline",
    oninput: () => look(field.value),
    onkeydown: event => {
      if (event.key === "Enter") go();
    },
  });
  const around = factor => () => {
    const middle = (view.from + view.to) / 2,
      half = ((view.to - view.from) / 2) * factor;
    moveView(middle - half, middle + half);
  };
  const buttons = [
    ["+", "zoom in", around(0.4)],
    ["−", "zoom out", around(2.5)],
    ["all", "the whole run", () => moveView(0, run.makespan)],
  ].map(([text, title, onclick]) => make("button", { title, onclick }, text));
  const legend = ["compute", "communication", "forward", "backward", "weights", "update", "call"]
    .filter(k => present.has(k))
    .map(k => [k, { weights: "backward of weights", call: "function" }[k] ?? k]);
  card(
    "Timeline",
    make(
      "p",
      { class: "soft" },
      run.note + " Drag to move; click, then scroll, to zoom (or Ctrl-scroll, W, S); double-click for all.",
    ),
    make(
      "p",
      { class: "controls" },
      ...buttons,
      field,
      make("button", { title: "to the next match", onclick: go }, "next"),
      result,
    ),
    keys(...legend, ["accent", "critical path"]),
    canvas,
  );
  timed(canvas, draw, describe);
  return draw;
}

function memory(run) {
  const canvas = make("canvas"),
    height = 220;
  const select = make(
    "select",
    {
      onchange: () => {
        draw();
        held();
      },
    },
    make("option", { value: -1 }, "all devices"),
    ...run.memory.map(m => make("option", { value: m.device }, `device ${m.device}: ${bytes(m.peak)}`)),
  );
  const most = Math.max(...run.memory.map(m => m.peak), 1),
    scale = run.capacity <= 2.5 * most ? Math.max(run.capacity, most) * 1.05 : most * 1.08;
  const rung = roundStep(scale, 5, 1024);
  // Devices whose memory is the same at all times are one line.
  const alike = Map.groupBy
    ? [...Map.groupBy(run.memory, m => JSON.stringify(m.points)).values()]
    : run.memory.map(m => [m]);
  const numbers = group =>
    group
      .map(m => m.device)
      .reduce((runs, d) => {
        const last = runs.at(-1);
        last && last[1] === d - 1 ? (last[1] = d) : runs.push([d, d]);
        return runs;
      }, [])
      .map(([a, b]) => (a === b ? a : `${a}–${b}`))
      .join(", ");
  const SHOWN = 16; // lines that the legend has; the others are all grey
  const colourOf = i => (i < SHOWN ? colour(i) : style("soft"));
  const legend = make("p", { class: "keys soft" });
  const at = (points, t) => {
    let low = 0,
      high = points.length;
    while (low < high) {
      const m = (low + high) >> 1;
      points[m][0] <= t ? (low = m + 1) : (high = m);
    }
    return low ? points[low - 1][1] : 0;
  };
  const draw = () => {
    const { g, width, x } = prepare(canvas, height),
      y = b => height - 8 - ((height - 30) * b) / scale;
    ruler(g, width, height, x);
    g.textAlign = "right";
    for (let b = 0; b <= scale; b += rung) {
      g.fillStyle = style("line");
      g.fillRect(GUTTER, y(b), width, 1);
      g.fillStyle = style("soft");
      g.fillText(bytes(Math.round(b)), GUTTER - 6, y(b));
    }
    if (run.capacity <= scale) {
      g.fillStyle = style("accent");
      g.fillRect(GUTTER, y(run.capacity), width, 1.5);
      g.textAlign = "left";
      g.fillText("capacity", GUTTER + 6, y(run.capacity) + 9);
    }
    const lines = alike.filter(group => select.value < 0 || group.some(m => m.device == select.value)),
      chosen = lines.map(group => group[0]);
    legend.replaceChildren(
      ...lines
        .slice(0, SHOWN)
        .map((group, i) =>
          make(
            "span",
            {},
            make("i", { style: `background:${colourOf(i)}` }),
            `device${group.length > 1 ? "s" : ""} ${numbers(group)}`,
          ),
        ),
      ...(lines.length > SHOWN ? [make("span", {}, `and ${lines.length - SHOWN} more`)] : []),
    );
    chosen.forEach((m, i) => {
      g.strokeStyle = colourOf(i);
      g.lineWidth = 1.4;
      g.beginPath();
      g.moveTo(GUTTER, y(at(m.points, view.from)));
      for (const [t, b] of m.points)
        if (t > view.from && t <= view.to) {
          g.lineTo(x(t), y(at(m.points, t - 1e-9)));
          g.lineTo(x(t), y(b));
        }
      g.lineTo(width, y(at(m.points, view.to)));
      g.stroke();
      if (chosen.length === 1) {
        g.lineTo(width, y(0));
        g.lineTo(GUTTER, y(0));
        g.globalAlpha = 0.15;
        g.fillStyle = g.strokeStyle;
        g.fill();
        g.globalAlpha = 1;
      }
    });
  };
  const box = make("div"),
    by = make(
      "select",
      { onchange: () => held() },
      ...["kind", "layer", "module", "tensor"].map(name => make("option", {}, name)),
    );
  const held = () => {
    const device = select.value < 0 ? run.memory.reduce((a, b) => (a.peak >= b.peak ? a : b)).device : +select.value,
      peak = run.peaks.find(p => p.device === device);
    if (!peak) {
      box.replaceChildren();
      return;
    }
    const columns = [
      { name: "kind", value: h => h.role, text: true },
      { name: "module", value: h => h.module, text: true },
      { name: "name", value: h => h.name, text: true },
      { name: "made by", value: h => h.operation, text: true },
      { name: "in", value: h => h.path, text: true },
      {
        name: "tensors",
        value: h => h.copies,
        show: h => (h.copies > 1 ? `${h.copies.toLocaleString("en")} x ${bytes(h.bytes)}` : "1"),
      },
      { name: "bytes", value: h => h.bytes * h.copies, show: h => bytes(h.bytes * h.copies) },
      { name: "of the peak", value: h => h.bytes * h.copies, show: h => percent((h.bytes * h.copies) / peak.bytes) },
    ];
    const list =
      by.value === "tensor"
        ? table(
            columns.filter(c => !c.text || peak.held.some(c.value)),
            peak.held,
          )
        : table(
            [
              { name: by.value, value: p => p[0], text: true },
              { name: "bytes", value: p => p[1], show: p => bytes(p[1]) },
              { name: "of the peak", value: p => p[1], show: p => percent(p[1] / peak.bytes) },
              { name: "", value: p => p[1], show: p => bar({ compute: p[1] / peak.bytes }), text: true },
            ],
            peak.parts[by.value],
          );
    box.replaceChildren(
      make(
        "p",
        {},
        `Live on device ${device} at its peak of ${bytes(peak.bytes)}` +
          (peak.during ? ", during " + peak.during : "") +
          ", by ",
        by,
      ),
      list.node,
    );
  };
  card("Memory over time", make("p", {}, select), legend, canvas, box);
  timed(
    canvas,
    draw,
    t =>
      run.memory
        .filter(m => select.value < 0 || m.device == select.value)
        .slice(0, 16)
        .map(m => `device ${m.device}: ${bytes(at(m.points, t))}`)
        .join("\n") + `\nat ${time(t)}`,
  );
  held();
  return draw;
}

function why(run) {
  const total = run.makespan || 1;
  const devices = table(
    [
      { name: "device", value: d => d.device },
      ...(run.devices.some(d => d.place) ? [{ name: "place", value: d => d.place, text: true }] : []),
      {
        name: "time",
        value: d => d.compute,
        show: d => bar({ compute: d.compute / total, communication: d.communication / total, idle: d.idle / total }),
        text: true,
      },
      ...["compute", "communication", "idle", "hidden"].map(kind => ({
        name: { idle: "bubble", hidden: "hidden comm." }[kind] ?? kind,
        value: d => d[kind],
        show: d => percent(d[kind] / total),
      })),
    ],
    run.devices,
  );
  const group = by => {
    const sums = new Map();
    for (const l of run.links) {
      const key = by(l);
      const s = sums.get(key) ?? { key, time: 0, times: 0, shares: { compute: 0, communication: 0 } };
      s.time += l.time;
      s.times += l.times;
      s.shares[l.communicates ? "communication" : "compute"] += l.time / total;
      sums.set(key, s);
    }
    return [...sums.values()].sort((a, b) => b.time - a.time);
  };
  const columns = name => [
    { name, value: l => l.key, text: true },
    { name: "time", value: l => l.time, show: l => time(l.time) },
    { name: "share", value: l => l.time, show: l => percent(l.time / total) },
    { name: "times", value: l => l.times },
    { name: "", value: l => l.time, show: l => bar(l.shares), text: true },
  ];
  const box = make("div"),
    choose = by =>
      box.replaceChildren(
        table(
          columns(by),
          group(
            l => ({ operation: `${l.name} in ${l.function}`, layer: l.function, kind: l.kind.replace("_", " ") })[by],
          ),
        ).node,
      );
  const select = make(
    "select",
    { onchange: () => choose(select.value) },
    ...["operation", "layer", "kind"].map(by => make("option", {}, by)),
  );
  card(
    "Critical path",
    make(
      "p",
      { class: "soft" },
      `What the ${time(run.makespan)} follow, without a gap: ` +
        "shortening anything else does not make the program faster. By ",
      select,
    ),
    box,
  );
  choose("operation");
  const partBox = make("div"),
    parts = by =>
      partBox.replaceChildren(
        table(
          [
            { name: by, value: p => p[0], text: true },
            { name: "time", value: p => p[1], show: p => time(p[1]) },
            { name: "of makespan", value: p => p[1], show: p => percent(p[1] / total) },
            { name: "communication", value: p => p[2], show: p => (p[1] ? percent(p[2] / p[1]) : "") },
            { name: "memory at peak", value: p => p[3], show: p => (p[3] ? bytes(p[3]) : "") },
          ],
          run.parts[by],
        ).node,
      );
  const bySelect = make(
    "select",
    { onchange: () => parts(bySelect.value) },
    ...Object.keys(run.parts).map(by => make("option", {}, by)),
  );
  card(
    "In the model's names",
    make("p", { class: "soft" }, "Time of an average device, and memory of the fullest at its peak, by ", bySelect),
    partBox,
  );
  parts("module");
  if (run.axes.length)
    card(
      "Communication by axis",
      make(
        "p",
        { class: "soft" },
        "Of an average device: beside what it computes nothing (exposed), and beside what it does (hidden).",
      ),
      table(
        [
          { name: "axis", value: a => a.axis, text: true },
          ...["exposed", "hidden"].map(kind => ({
            name: kind,
            value: a => a[kind],
            show: a => `${time(a[kind])}, ${percent(a[kind] / total)}`,
          })),
        ],
        run.axes,
      ).node,
    );
  card(
    "Time of each device",
    keys(["compute", "compute"], ["communication", "communication that shows"], ["idle", "bubble"]),
    devices.node,
  );
}

function page() {
  const tiles = make(
    "div",
    { class: "tiles" },
    ...data.tiles.map(([name, value, note, bad]) =>
      make(
        "div",
        { class: "tile" + (bad ? " bad" : "") },
        make("span", { class: "soft" }, name),
        make("b", {}, value),
        make("span", { class: "soft" }, note),
      ),
    ),
  );
  document.body.insertBefore(tiles, tip);
  if (data.search && data.search.plans.length) plans(data.search);
  if (data.explanation && data.explanation.length)
    card("Why this sharding", make("pre", { class: "scroll" }, data.explanation.join("\n")));
  if (data.run) {
    view.to = data.run.makespan || 1;
    timeline(data.run);
    memory(data.run);
    why(data.run);
    const redraw = () => view.listeners.forEach(draw => draw());
    redraw();
    addEventListener("resize", redraw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }
  if (data.facts && data.facts.length)
    card(
      "Where this comes from",
      make(
        "dl",
        {},
        ...data.facts.flatMap(([name, text]) => [make("dt", { class: "soft" }, name), make("dd", {}, text)]),
      ),
    );
}
page();
