"use strict";
// Shows the data of a published site. Every name from the data becomes a text node, never HTML.

const DATA = {};

function roofwatch(name, packed) {
  DATA[name] = packed;
}

async function load(name) {
  if (!(name in DATA)) {
    await new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `data/${name}.js`;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`data/${name}.js cannot be loaded`));
      document.head.append(script);
    });
  }
  if (typeof DATA[name] === "string") {
    const letters = atob(DATA[name]);
    const bytes = new Uint8Array(letters.length);
    // a loop is many times as fast as Uint8Array.from
    for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    DATA[name] = JSON.parse(await new Response(stream).text());
  }
  return DATA[name];
}

// --- elements

function element(tag, options = {}, ...children) {
  const created = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") created.className = value;
    else if (name === "text") created.textContent = value;
    else created.setAttribute(name, value);
  }
  created.append(...children.filter((child) => child !== null));
  return created;
}

function link(page, state, text) {
  return element("a", { href: `${page}.html#${new URLSearchParams(state)}`, text });
}

function table(caption, columns, rows) {
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col", text: name })));
  const body = rows.map((cells) => element("tr", {}, ...cells.map((cell) =>
    typeof cell === "string" ? element("td", { class: cell.length < 16 ? "short" : "", text: cell }) : element("td", {}, cell))));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("caption", { text: caption }), element("thead", {}, head),
      element("tbody", {}, ...body)));
}

function sparkline(values, changedAt) {
  if (values.length < 2) return element("span");
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  const at = (value, index) =>
    `${(index * 116) / (values.length - 1) + 2},${26 - ((value - low) * 24) / span}`;
  const drawn = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  drawn.setAttribute("class", "spark");
  drawn.setAttribute("viewBox", "0 0 120 28");
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", `from ${values[0]} to ${values[values.length - 1]}`);
  const line = document.createElementNS(drawn.namespaceURI, "polyline");
  line.setAttribute("points", values.map(at).join(" "));
  line.setAttribute("fill", "none");
  line.setAttribute("stroke", "currentColor");
  drawn.append(line);
  if (changedAt !== null && changedAt < values.length) {
    const dot = document.createElementNS(drawn.namespaceURI, "circle");
    const [x, y] = at(values[changedAt], changedAt).split(",");
    dot.setAttribute("cx", x);
    dot.setAttribute("cy", y);
    dot.setAttribute("r", "3");
    dot.setAttribute("fill", "currentColor");
    drawn.append(dot);
  }
  return drawn;
}

function select(label, name, choices, chosen, texts = {}) {
  const options = choices.map((choice) => {
    const option = element("option", { value: choice, text: texts[choice] || choice });
    option.selected = choice === chosen;
    return option;
  });
  const control = element("select", { name }, ...options);
  control.addEventListener("change", () => setState({ [name]: control.value }));
  return element("label", { text: label }, control);
}

// --- state: everything that is chosen is in the address

function state() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function setState(changes) {
  location.hash = new URLSearchParams({ ...state(), ...changes });
}

// --- numbers

const THOUSANDS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const TIMES_OF_NS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [0, "ns"]];
const ENERGIES_OF_NJ = [[1e9, "J"], [1e6, "mJ"], [1e3, "µJ"], [0, "nJ"]];
const BYTES = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [0, "B"]];
const NS_BY_UNIT = { ns: 1, nsec: 1, us: 1e3, "µs": 1e3, "μs": 1e3, usec: 1e3, ms: 1e6, msec: 1e6, s: 1e9, sec: 1e9, seconds: 1e9 };
const RATES = ["FLOP/s", "B/s", "tokens/s"];

function scaledText(value, steps) {
  const [size, unit] = steps.find(([least]) => Math.abs(Number(value.toPrecision(3))) >= least) || steps[steps.length - 1];
  return `${Number((value / (size || 1)).toPrecision(3))} ${unit}`;
}

// units of other tools keep their own multiples: 465 ms / 1000 is 465 µs, and 3,000 GB/s stay GB/s
function numberText(value, unit) {
  if (value === null || value === undefined) return "failed";
  if (Object.hasOwn(NS_BY_UNIT, unit)) return scaledText(value * NS_BY_UNIT[unit], TIMES_OF_NS);
  if (unit === "J") return scaledText(value * 1e9, ENERGIES_OF_NJ);
  if (unit === "bytes") return scaledText(value, BYTES);
  if (unit === "share") return `${Number((100 * value).toPrecision(4))}%`;
  if (RATES.includes(unit)) return scaledText(value, THOUSANDS) + unit;
  const written = Number(value.toPrecision(4));
  if (unit === "ratio") return `${written}×`;
  if (unit === "absolute") return String(written);
  return unit === "%" ? `${written}%` : `${written} ${unit}`.trim();
}

// --- history

const [BLUE, VERMILLION, GREY] = ["var(--rw-blue)", "#D55E00", "#888888"];
const MARKS = { regressed: ["◆", VERMILLION], improved: ["●", BLUE] };

// months before the newest one; years of thousands of series are tens of megabytes
const TIMES = { "3 months": 3, "1 year": 12, everything: Infinity };

function chosenTime() {
  return state().time in TIMES ? state().time : "3 months";
}

function monthNumber(shard) {
  const [year, month] = shard.month.split("-").map(Number);
  return 12 * year + month;
}

function shardsOf(index, runner, time) {
  const own = index.shards.filter((shard) => shard.runner === runner);
  const newest = Math.max(...own.map(monthNumber));
  return own.filter((shard) => newest - monthNumber(shard) <= TIMES[time]);
}

function selectTime(index, runner) {
  const shards = shardsOf(index, runner, "everything");
  // a short history has nothing to choose
  if (shardsOf(index, runner, "3 months").length === shards.length) return null;
  return select("time", "time", Object.keys(TIMES), chosenTime());
}

async function points(index, id, isEnough = (history) => history.length > 0) {
  // values of a series in the order of the branch; all of them if the chosen time does not show what is asked for
  const { runner } = index.series[id];
  for (const time of unique([chosenTime(), "everything"])) {
    const shards = await Promise.all(shardsOf(index, runner, time).map((shard) => load(shard.name)));
    const history = shards.flatMap((shard) => (shard.values[id] || []).map(([run, value, low, high]) =>
      ({ ...shard.runs[run], value, low, high })));
    history.sort((a, b) => a.position - b.position || a.measured.localeCompare(b.measured));
    if (time === "everything" || isEnough(history)) return history;
  }
}

function changePoints(index, id) {
  return index.regressions.flatMap((regression) => regression.changes
    .filter((change) => change.series === id)
    .map((change) => ({ ...change, regression })));
}

function drawn(tag, attributes, ...children) {
  const created = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
  created.append(...children);
  return created;
}

function roundValues(low, high) {
  const power = 10 ** Math.floor(Math.log10((high - low) / 4));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= (high - low) / 4);
  const values = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) values.push(value);
  return values;
}

// the same picture as the dashboard's: places are percentages, so it fits every width
function drawChart(place, index, id, history) {
  const series = index.series[id];
  const measured = history.filter((point) => point.value !== null);
  if (!measured.length) return;
  const times = measured.map((point) => Date.parse(point.date));
  const values = measured.map((point) => point.value);
  const [start, end] = [Math.min(...times), Math.max(...times)];
  // noise must not look like steps
  const room = Math.max(0.06 * (Math.max(...values) - Math.min(...values)), 0.05 * Math.abs(Math.max(...values))) || 1;
  const [low, high] = [Math.min(...values) - room, Math.max(...values) + room];
  const x = (time) => (end > start ? 2 + (96 * (time - start)) / (end - start) : 50);
  const y = (value) => 100 - (100 * (value - low)) / (high - low);
  const ticks = roundValues(low, high);
  const lines = drawn("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", fill: "none", "aria-hidden": "true" });
  for (const value of ticks) {
    lines.append(drawn("line", { x1: 0, x2: 100, y1: y(value), y2: y(value), stroke: GREY, "stroke-opacity": 0.2 }));
  }
  const labels = element("div", { class: "rw-changes" });
  for (const change of changePoints(index, id)) {
    const at = measured.find((point) => point.sha === change.sha);
    if (!at) continue;
    const left = x(Date.parse(at.date));
    const [symbol, colour] = MARKS[change.regression.verdict] || ["?", GREY];
    lines.append(drawn("line", { x1: left, x2: left, y1: 0, y2: 100, stroke: colour, "stroke-dasharray": "4 3" }));
    const side = left < 60 ? `left:${left}%` : `right:${100 - left}%`;
    labels.append(element("span", { class: change.regression.verdict, style: side, title: change.evidence, text: `${symbol} ${change.sha.slice(0, 8)}` }));
  }
  const corners = measured.map((point) => `${x(Date.parse(point.date))},${y(point.value)}`);
  lines.append(drawn("polyline", { points: corners.join(" "), stroke: BLUE, "stroke-width": 1.5 }));
  const circles = measured.map((point) => {
    const title = drawn("title", {});
    title.textContent = `${numberText(point.value, series.unit)}, ${point.date.slice(0, 10)} ${point.sha.slice(0, 8)} ${point.subject} by ${point.author}`;
    return drawn("circle", { cx: `${x(Date.parse(point.date))}%`, cy: `${y(point.value)}%`, r: 3, fill: BLUE }, title);
  });
  const dates = element("div", { class: "rw-dates" });
  for (const share of end > start ? [0, 0.25, 0.5, 0.75, 1] : [0.5]) {
    const date = new Date(start + share * (end - start)).toISOString().slice(0, 10);
    dates.append(element("span", { style: `left:${2 + 96 * share}%`, text: date }));
  }
  place.replaceChildren(element("div", { class: "rw-history" },
    labels,
    element("div", { class: "rw-values" }, ...ticks.map((value) =>
      element("span", { style: `bottom:${100 - y(value)}%`, text: numberText(value, series.unit) }))),
    element("div", { class: "rw-plot", style: "height:320px" }, lines, drawn("svg", {}, ...circles)),
    dates));
}

function historyTable(series, history) {
  const rows = history.slice(-50).reverse().map((point) => [
    element("code", { text: point.sha.slice(0, 8) }), point.date.slice(0, 10), point.author,
    point.subject, numberText(point.value, series.unit)]);
  return table("The newest 50 runs", ["commit", "date", "author", "subject", series.title], rows);
}

function ordered(index) {
  return Object.entries(index.series).sort(([, a], [, b]) =>
    a.kernel.localeCompare(b.kernel) || a.case.localeCompare(b.case)
    || a.implementation.localeCompare(b.implementation) || a.metric.localeCompare(b.metric)
    || a.runner.localeCompare(b.runner) || a.part.localeCompare(b.part));
}

const unique = (values) => [...new Set(values)];

function metricTexts(index) {
  const titles = new Map(Object.values(index.series).map((series) => [series.metric, series.title]));
  const all = [...titles.values()];
  // metrics that share a title keep their names
  const isShared = (title) => all.indexOf(title) !== all.lastIndexOf(title);
  return Object.fromEntries([...titles].map(([metric, title]) => [metric, isShared(title) ? metric : title]));
}

function chooseSeries(index, fields, fixed) {
  // one control for each field; each offers what the choices before it leave
  const chosen = { ...state(), ...fixed };
  const texts = { metric: metricTexts(index) };
  let left = ordered(index);
  const controls = [];
  for (const [label, name] of fields) {
    const choices = unique(left.map(([, series]) => series[name]));
    if (name === "metric") choices.sort((a, b) => (b === "median_ns") - (a === "median_ns"));
    const value = choices.includes(chosen[name]) ? chosen[name] : choices[0];
    if (choices.length > 1 && !(name in fixed)) controls.push(select(label, name, choices, value, texts[name]));
    left = left.filter(([, series]) => series[name] === value);
  }
  return { id: left[0][0], controls: element("div", { class: "controls" }, ...controls) };
}

// --- pages

// a symbol beside the word, so that nothing depends on colour alone
function verdictText(verdict) {
  const [symbol] = MARKS[verdict] || ["?"];
  return `${symbol} ${verdict} `;
}

function card(regression) {
  const settled = regression.is_open || regression.verdict !== "regressed" ? null : element("p", { class: "quiet", text: `settled: ${regression.settled_by}` });
  const outline = regression.outline.length ? sparkline(regression.outline, regression.changed_at) : null;
  return element("article", {},
    element("h2", {}, outline,
      element("span", { class: regression.verdict, text: verdictText(regression.verdict) }),
      link("regression", { id: regression.id }, regression.kernel)),
    element("p", { text: regression.summary }),
    element("p", { class: "quiet" },
      element("code", { text: regression.range }),
      ` ${[regression.subject, regression.author, regression.date.slice(0, 10), `cause: ${regression.cause}`,
        regression.is_confirmed ? "confirmed" : "not confirmed"].filter(Boolean).join(" · ")}`),
    settled);
}

function overview(index) {
  const open = index.regressions.filter((one) => one.is_open);
  const rest = index.regressions.filter((one) => !one.is_open).slice(0, 20);
  const filter = element("input", { type: "search", name: "search" });
  const kernels = element("div");
  const showKernels = () => {
    const text = filter.value.toLowerCase();
    const rows = unique(ordered(index).map(([, series]) => series.kernel))
      .filter((kernel) => kernel.toLowerCase().includes(text))
      .map((kernel) => {
        const own = Object.values(index.series).filter((series) => series.kernel === kernel);
        const slower = open.filter((one) => one.kernel.split(", ").includes(kernel) && one.verdict === "regressed");
        return [link("kernel", { kernel }, kernel), String(unique(own.map((series) => series.case)).length),
          unique(own.map((series) => series.implementation)).join(", "),
          slower.length ? link("regression", { id: slower[0].id }, `regressed at ${slower[0].sha.slice(0, 8)}`)
            : "no open regression"];
      });
    kernels.replaceChildren(table(`${rows.length} kernels`, ["kernel", "cases", "implementations", "state"], rows));
  };
  filter.addEventListener("input", showKernels);
  showKernels();
  return [
    element("h1", { text: open.length ? `${open.length} open` : "No open regression" }),
    ...open.map(card),
    element("h2", { text: "Kernels" }),
    element("label", { text: "Search " }, filter), kernels,
    rest.length ? element("h2", { text: "Settled and improved" }) : null, ...rest.map(card),
  ].filter((shown) => shown !== null);
}

async function charted(index, title, fields, fixed, more = []) {
  const { id, controls } = chooseSeries(index, fields, fixed);
  const series = index.series[id];
  const history = await points(index, id);
  const time = selectTime(index, series.runner);
  if (time) controls.append(time);
  const chart = element("div", { class: "chart", role: "group", "aria-label": `${series.title} of ${series.case}` });
  const changes = changePoints(index, id).map((change) => element("p", {},
    element("span", { class: change.regression.verdict, text: verdictText(change.regression.verdict) }),
    link("regression", { id: change.regression.id }, `at ${change.sha.slice(0, 8)}`), `: ${change.evidence}`));
  const direction = series.better === "unknown" ? "direction unknown" : `${series.better} is better`;
  setTimeout(() => drawChart(chart, index, id, history));
  return [element("h1", { text: title }), ...more, controls,
    element("p", { class: "quiet", text: `${series.case} · ${series.implementation} ${series.part} · ${series.runner} · ${direction}` }),
    chart, ...changes, historyTable(series, history)];
}

const CASE_FIELDS = [["case", "case"], ["implementation", "implementation"], ["runner", "runner"], ["metric", "metric"], ["part", "part"]];

function kernelPage(index) {
  const kernels = unique(ordered(index).map(([, series]) => series.kernel));
  const kernel = kernels.includes(state().kernel) ? state().kernel : kernels[0];
  return charted(index, kernel, [["kernel", "kernel"], ...CASE_FIELDS], { kernel });
}

function trends(index) {
  return charted(index, "Trends", [["kernel", "kernel"], ...CASE_FIELDS], {});
}

async function regressionPage(index) {
  const regression = index.regressions.find((one) => one.id === state().id);
  if (!regression) return [element("h1", { text: "Regression" }), element("p", { text: "There is no such regression on this site. It may have been found by an older analysis." }), link("index", {}, "Overview")];
  const texts = metricTexts(index);
  const rows = regression.changes.map((change) => {
    const series = index.series[change.series];
    const text = `${change.label} · ${texts[change.metric] || change.metric}`;
    if (!series) return [text, change.evidence];
    const chosen = {};
    for (const name of ["kernel", "case", "implementation", "runner", "metric", "part"]) chosen[name] = series[name];
    return [link("kernel", chosen, text), change.evidence];
  });
  const shown = [element("h1", { text: `${regression.kernel}: ${regression.verdict}` }), card(regression)];
  const first = regression.changes.find((change) => change.series in index.series);
  if (first) {
    const history = await points(index, first.series, (shown) => shown.some((point) => point.sha === first.sha));
    const chart = element("div", { class: "chart", role: "group", "aria-label": `history of ${first.label}` });
    setTimeout(() => drawChart(chart, index, first.series, history));
    shown.push(element("p", { class: "quiet", text: `${first.label} · ${index.series[first.series].runner}` }), chart);
  }
  if (regression.suspects.length) shown.push(table("Possible causes", ["cause", "share", "evidence"],
    regression.suspects.map((one) => [one.cause, `${Math.round(100 * one.weight)} %`, one.sentence])));
  shown.push(table("What changed", ["series", "evidence"], rows));
  return shown;
}

async function compare(index) {
  const runners = unique(index.shards.map((shard) => shard.runner));
  const timed = new Set(Object.values(index.series).filter((series) => series.metric === "median_ns").map((series) => series.runner));
  // a reader compares measured times first, where there is most of them
  const runCount = (name) => index.shards.filter((shard) => shard.runner === name).reduce((count, shard) => count + shard.run_count, 0);
  runners.sort((a, b) => timed.has(b) - timed.has(a) || runCount(b) - runCount(a));
  const runner = runners.includes(state().runner) ? state().runner : runners[0];
  const loadAll = (time) => Promise.all(shardsOf(index, runner, time).map((shard) => load(shard.name)));
  let shards = await loadAll(chosenTime());
  const isShown = (sha) => shards.some((shard) => shard.runs.some((run) => run.sha.startsWith(sha.slice(0, 8))));
  // a link may name a commit that is older than the chosen time
  if (![state().base, state().head].every((sha) => !sha || isShown(sha))) shards = await loadAll("everything");
  const byPosition = new Map();
  for (const shard of shards) for (const run of shard.runs) byPosition.set(run.sha, run);
  const commits = [...byPosition.values()].sort((a, b) => b.position - a.position);
  const label = (run) => `${run.sha.slice(0, 8)} ${run.date.slice(0, 10)} ${run.subject.slice(0, 60)}`;
  const labels = commits.map(label);
  const head = commits.find((run) => run.sha.startsWith((state().head || "").slice(0, 8))) || commits[0];
  const base = commits.find((run) => state().base && run.sha.startsWith(state().base.slice(0, 8))) || commits[1] || head;
  const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const metrics = unique(ordered(index).filter(([, series]) => series.runner === runner).map(([, series]) => series.metric));
  metrics.sort((a, b) => (b === "median_ns") - (a === "median_ns"));
  const metric = metrics.includes(state().metric) ? state().metric : metrics[0];
  const texts = metricTexts(index);
  const rows = [];
  for (const [id, series] of ordered(index)) {
    if (series.runner !== runner || series.metric !== metric) continue;
    const values = { base: [], head: [] };
    for (const shard of shards) {
      for (const [run, value] of shard.values[id] || []) {
        if (value === null) continue;
        if (shard.runs[run].sha === base.sha) values.base.push(value);
        if (shard.runs[run].sha === head.sha) values.head.push(value);
      }
    }
    if (!values.base.length && !values.head.length) continue;
    const [before, after] = [median(values.base), median(values.head)];
    const difference = values.base.length && values.head.length ? after / before - 1 : null;
    rows.push({ difference, cells: [
      link("kernel", { kernel: series.kernel, case: series.case, implementation: series.implementation, runner, metric: series.metric }, `${series.case} ${series.implementation} ${series.part}`),
      values.base.length ? numberText(before, series.unit) : "not measured",
      values.head.length ? numberText(after, series.unit) : "not measured",
      difference === null ? "" : `${difference >= 0 ? "+" : "−"}${Math.abs(100 * difference).toFixed(1)} %`] });
  }
  rows.sort((a, b) => Math.abs(b.difference || 0) - Math.abs(a.difference || 0));
  const controls = element("div", { class: "controls" }, select("runner", "runner", runners, runner),
    select("metric", "metric", metrics, metric, texts), select("base", "base", labels, label(base)), select("head", "head", labels, label(head)));
  const time = selectTime(index, runner);
  if (time) controls.append(time);
  return [element("h1", { text: "Compare" }), controls,
    element("p", { text: "These are separate runs, which give no verdict: the machine may differ between them. A pair measured in one job (roofwatch ab) decides." }),
    table(`${rows.length} values of ${texts[metric]}`, ["case", "base", "head", "difference"], rows.map((row) => row.cells))];
}

const PAGES = { index: overview, trends, kernel: kernelPage, regression: regressionPage, compare };

async function show() {
  const main = document.getElementById("main");
  try {
    const index = await load("index");
    document.getElementById("project").textContent = `${index.project} · published ${index.published.slice(0, 16).replace("T", " ")} UTC`;
    if (!Object.keys(index.series).length) {
      main.replaceChildren(element("h1", { text: "Nothing measured" }), element("p", { text: "The history of this project has no values yet." }));
      return;
    }
    main.replaceChildren(...await PAGES[document.body.dataset.page](index));
    document.title = `${main.querySelector("h1").textContent} · ${index.project}`;
  } catch (error) {
    main.replaceChildren(element("h1", { text: "This page cannot be shown" }), element("p", { role: "alert", text: error.message }));
  }
}

window.addEventListener("hashchange", show);
show();
