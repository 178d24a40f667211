/* The page of tern ledger report: its sections, from the data that stand in it (report_run.c tells
 * their members).  plot.js, which comes first, draws. */
(() => {
const {el, number} = tern;
const data = (kind) => [...document.querySelectorAll(`script.${kind}`)].map((e) => JSON.parse(e.textContent));
const main = document.getElementById("main"), live = data("live")[0];
/* What was chosen outlives the data. */
const state = {x: null, unit: "ppl", logPpl: null, logLoss: false, smooth: 0, phases: null, recipes: new Set()};
const zooms = new Map();
const show = (runs, page) => {
const plots = [], refreshes = [];
const draw = () => { refreshes.forEach((f) => f()); plots.forEach((p) => p.draw()); };

/* A run's words: its name, or id where names repeat. */
runs.forEach((r, i) => {
    const name = r.name || r.id, twice = runs.filter((o) => (o.name || o.id) === name).length > 1;
    r.label = (twice ? `${name} ${r.id.slice(0, 12)}` : name) + (r.baseline ? " (baseline)" : "");
    r.key = "run " + i;
    r.color = i;
});

/* ---------------------------------------------------------------- words */

const seconds = (s) => {
    if (s === null || !Number.isFinite(s)) return "\u2013";
    const [by, name] = s >= 2 * 86400 ? [86400, "d"] : s >= 5400 ? [3600, "h"] : s >= 99.5 ? [60, "min"] : s >= 1 || s === 0 ? [1, "s"] : [1e-3, "ms"];
    return number(s / by, 3) + " " + name;
};
const bytes = (n) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let k = 0;
    while (n >= 1024 && k < units.length - 1) { n /= 1024; k++; }
    return number(n, 3) + " " + units[k];
};
const percent = (v) => v === null || !Number.isFinite(v) ? "\u2013" : (100 * v).toFixed(1) + " %";
const short = (v) => {
    if (v === null || !Number.isFinite(v)) return "\u2013";
    const u = Math.abs(v) >= 1e12 ? [1e12, "T"] : Math.abs(v) >= 1e9 ? [1e9, "B"] : Math.abs(v) >= 1e6 ? [1e6, "M"] : Math.abs(v) >= 1e4 ? [1e3, "k"] : [1, ""];
    return number(v / u[0], 4) + (u[1] ? " " + u[1] : "");
};
const time = (iso) => iso ? iso.slice(0, 19).replace("T", " ") : "\u2013";
const classes = ["", "NaN", "infinity", "-infinity"];

/* ---------------------------------------------------------------- parts of the page */

let sections = 0;
const section = (id, title, words) => {
    sections++;
    const s = el("section", {id}, el("h2", {}, `${sections}. ${title}`), words && el("p", {class: "words"}, words));
    main.append(s);
    return s;
};
const table = (head, rows, cls) => el("div", {class: "wide"}, el("table", {class: cls || ""},
    head && el("thead", {}, el("tr", {}, head.map((h) => el("th", {scope: "col"}, h)))),
    el("tbody", {}, rows)));
/* On a phone each row is a list, whose lines have the heads' names. */
const stack = (head, rows, cls) => {
    rows.forEach((r) => [...r.children].forEach((c, i) => {
        c.setAttribute("data-head", head[i]);
        c.replaceChildren(el("div", {}, [...c.childNodes]));
    }));
    return table(head, rows, `stack ${cls || ""}`);
};
const row = (head, cells, cls) => el("tr", {class: cls}, head !== null && el("th", {scope: "row"}, head), cells.map((c) =>
    c && c.words !== undefined ? el("td", {class: "words"}, c.words) : el("td", {}, c)));
const words = (s) => ({words: s === null || s === undefined ? "" : s});
const runName = (r) => [tern.swatch(r.color), " ", r.label];

/* Buttons of which one is chosen. */
const choice = (label, list, get, set) => {
    if (list.length > 6) {
        const s = el("select", {"aria-label": label, onchange: () => { set(list[s.selectedIndex][0]); draw(); }}, list.map(([, name]) => el("option", {}, name)));
        refreshes.push(() => { s.selectedIndex = list.findIndex(([value]) => value === get()); });
        return el("label", {class: "choice"}, el("span", {class: "label"}, label), s);
    }
    const box = el("span", {class: "choice", role: "group", "aria-label": label}, el("span", {class: "label"}, label));
    for (const [value, name] of list) {
        const b = el("button", {type: "button", onclick: () => { set(value); draw(); }}, name);
        refreshes.push(() => b.setAttribute("aria-pressed", get() === value));
        box.append(b);
    }
    return list.length > 1 ? box : null;
};
const toggle = (name, get, set) => {
    const b = el("button", {type: "button", onclick: () => { set(!get()); draw(); }}, name);
    refreshes.push(() => b.setAttribute("aria-pressed", get()));
    return el("span", {class: "choice"}, b);
};
const legend = (items) => el("div", {class: "legend"}, items.map((item) => {
    const b = el("button", {type: "button", class: "key", "data-key": item.key, onclick: () => {
        if (!tern.hidden.delete(item.key)) tern.hidden.add(item.key);
        draw();
    }}, tern.swatch(item.color, item.mark), " ", item.name);
    refreshes.push(() => b.setAttribute("aria-pressed", !tern.hidden.has(item.key)));
    return b;
}));
const runLegend = (marks, levels) => el("div", {class: "legends"},
    legend(runs.map((r) => ({key: r.key, color: r.color, name: r.label, mark: r.baseline && levels ? "level" : null}))), marks);
const figure = (plot, caption) => {
    const place = `${sections} ${plots.length}`, zoom = zooms.get(place);
    plots.push(plot);
    plot.kept = (z) => zooms.set(place, z);
    if (zoom) plot.zoom = zoom;
    return el("figure", {}, caption && el("figcaption", {}, caption), plot.node);
};

/* ---------------------------------------------------------------- axes */

const has = (r, kind) => kind === "step" || r[kind].step.length > 0;
const priced = page.usd_hour !== null;
const kinds = [["tokens", "tokens"], ["step", "steps"], ["seconds", "time"], ["node_hours", priced ? "cost" : "node-hours"]].filter(([k]) => runs.some((r) => has(r, k)));
if (!kinds.some(([k]) => k === state.x)) state.x = kinds[0][0];
const axes = {
    tokens: {label: "training tokens", unit: tern.countUnit},
    step: {label: "step", unit: (most) => most >= 1e6 ? tern.countUnit(most) : tern.plainUnit()},
    seconds: {label: "training time", unit: tern.timeUnit},
    node_hours: {label: priced ? "cost in USD" : "node-hours of all attempts", unit: tern.countUnit},
};
const scaled = (x) => state.x === "node_hours" && priced ? x.map((v) => v === null ? null : v * page.usd_hour) : x;
const xChoice = () => choice("against", kinds, () => state.x, (v) => { state.x = v; });

/* Steps as what the axis counts; the sums are straight between their places, and 0 at step 0. */
const places = (r, steps) => {
    if (state.x === "step") return steps;
    const s = r[state.x];
    const x = [0, ...s.step], y = scaled([0, ...s.total]);
    return steps.map((at) => at >= x[x.length - 1] ? y[y.length - 1] : tern.between(x, y, at));
};
const placeWords = (step) => `step ${number(step)}`;

/* Exponential smoothing with a half-life in steps, to both sides: nothing is late, and the ends are
 * not pulled to 0. */
const smoothed = (x, y, count, half) => {
    const sum = new Array(y.length).fill(0), weight = new Array(y.length).fill(0);
    const add = (i, state) => {
        if (y[i] === null) return;
        const keep = state.x === null ? 0 : 0.5 ** (Math.abs(x[i] - state.x) / half), own = count ? count[i] : 1;
        sum[i] += state.sum * keep;
        weight[i] += state.weight * keep;
        state.sum = state.sum * keep + y[i] * own;
        state.weight = state.weight * keep + own;
        state.x = x[i];
    };
    const forth = {x: null, sum: 0, weight: 0}, back = {x: null, sum: 0, weight: 0};
    for (let i = 0; i < y.length; i++) add(i, forth);
    for (let i = y.length - 1; i >= 0; i--) add(i, back);
    return y.map((v, i) => {
        const own = count ? count[i] : 1;
        return v === null ? null : (sum[i] + v * own) / (weight[i] + own);
    });
};

/* A metric of the steps as a line. */
const curveLine = (r, metric, options = {}) => {
    const c = r.curves[metric];
    if (!c || !has(r, state.x)) return null;
    const x = places(r, c.step), last = c.step[c.step.length - 1];
    const half = options.smooth ? last * (options.smooth / 100) ** 2 * 0.2 : 0;
    const y = half > 0 ? smoothed(c.step, c.value, c.count, half) : c.value;
    const show = options.show || number;
    return {
        key: options.key || r.key, name: options.name || r.label, color: options.color === undefined ? r.color : options.color,
        x, y, low: half > 0 ? null : c.value_low, high: c.value_high, faint: half > 0 ? c.value : null,
        bad: c.value_class ? x.filter((_, i) => c.value_class[i]) : [],
        marks: options.marks ? runMarks(r) : [],
        tip: (i) => {
            const v = c.value[i] === null && c.value_class ? classes[c.value_class[i]] : show(y[i]);
            const raw = half > 0 ? `raw ${show(c.value[i])}` : c.count && c.count[i] > 1 ? `${show(c.value_low[i])} to ${show(c.value_high[i])}` : "";
            return [v, raw, placeWords(c.step[i])];
        },
    };
};
const runMarks = (r) => {
    const marks = r.checkpoint_steps.map((step) => ({kind: "checkpoint", step}));
    r.attempt_rows.slice(1).forEach((a) => {
        const from = a.resumed_step !== null ? a.resumed_step : a.first_step;
        if (from !== null && from > 0 && a.first_step !== null) marks.push({kind: "restart", step: from});
    });
    marks.sort((a, b) => a.step - b.step);
    const x = places(r, marks.map((m) => m.step));
    return marks.map((m, i) => ({kind: m.kind, x: x[i]})).filter((m) => m.x !== null);
};
const markLegend = () => el("span", {class: "legend-marks"},
    el("svg:svg", {width: 12, height: 12, class: "swatch"}, el("svg:path", {class: "checkpoint", d: "M6 1.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z"})), " checkpoint ",
    el("svg:svg", {width: 10, height: 14, class: "swatch"}, el("svg:line", {class: "restart", x1: 5, x2: 5, y1: 0, y2: 14})), " restart from there");
/* How much was thinned, in words. */
const thinned = (metrics) => {
    const list = runs.flatMap((r) => metrics.filter((m) => r.curves[m] && r.curves[m].points > r.curves[m].step.length)
        .map((m) => [r, m, r.curves[m].points, r.curves[m].step.length]));
    if (!list.length) return null;
    const most = Math.max(...list.map((l) => l[2]));
    return el("p", {class: "note thinned"}, `Of up to ${number(most)} recorded points a curve, each line here has at most ${number(Math.max(...list.map((l) => l[3])))}: ` +
        "means of equal parts, in a band from the least to the greatest value.");
};

/* ---------------------------------------------------------------- the summary */

const summary = () => {
    const rows = [
        ["id", (r) => r.id.slice(0, 12)], ["state", (r) => r.state], ["model", (r) => words(r.model)],
        ["parameters", (r) => r.parameters === null ? null : short(r.parameters) + (r.trainable_parameters !== null && r.trainable_parameters !== r.parameters ? `, trained ${short(r.trainable_parameters)}` : "")],
        ["steps", (r) => r.last_step === null ? null : number(r.last_step) + (r.steps ? ` of ${number(r.steps)}` : "")],
        ["training tokens", (r) => r.cost.tokens === null ? null : short(r.cost.tokens)],
        ["training time", (r) => seconds(r.goodput.training_seconds)],
        ["last loss", (r) => r.last_loss === null ? (r.last_loss_class ? classes[r.last_loss_class] : null) : number(r.last_loss)],
        ["attempts", (r) => number(r.attempts)],
        ["nodes", (r) => number(r.cost.nodes)],
        ["goodput", (r) => percent(r.goodput.goodput)],
        ["user", (r) => r.user], ["created", (r) => time(r.created)], ["tags", (r) => r.tags.length ? words(r.tags.join(", ")) : null],
    ].map(([name, of]) => [name, runs.map(of)]).filter(([, cells]) => cells.some((c) => c !== null && c !== undefined && c !== "\u2013" && (c.words === undefined || c.words)));
    main.append(el("section", {id: "summary"}, table(["", ...runs.map(runName)], rows.map(([name, cells]) => row(name, cells.map((c) => c === null || c === undefined ? "\u2013" : c))))));
};

/* ---------------------------------------------------------------- held-out perplexity */

const setLine = (r, set) => {
    const s = r.held_out.find((o) => o.set === set);
    if (!s || !s[state.unit] || !has(r, state.x)) return null;
    const y = s[state.unit], bad = s[state.unit + "_class"], x = scaled(s[state.x]);
    return {
        key: r.key, name: r.label, color: r.color, x, y, low: s[state.unit + "_low"], high: s[state.unit + "_high"],
        dots: y.length <= 60, bad: bad ? x.filter((_, i) => bad[i]) : [],
        marks: [], tip: (i) => [y[i] === null && bad ? classes[bad[i]] : number(y[i]), "", placeWords(s.step[i])],
    };
};
const heldOut = () => {
    const sets = [...new Set(runs.flatMap((r) => r.held_out.map((s) => s.set)))];
    const all = runs.flatMap((r) => r.held_out.flatMap((s) => s.ppl)).filter((v) => v > 0);
    const wide = Math.max(...all) > 30 * Math.min(...all); /* holds until the reader chooses */
    const logPpl = () => state.logPpl === null ? wide : state.logPpl;
    const units = [["ppl", "per token"], ["ppl_byte", "per byte"]].filter(([u]) => runs.some((r) => r.held_out.some((s) => s[u])));
    if (!sets.length) return;
    const s = section("held-out", "Held-out perplexity", "Perplexity of text that no run was trained on; lower is better. Per byte of text, models with different tokenizers can be compared.");
    s.append(el("div", {class: "tools"}, xChoice(), choice("perplexity", units, () => state.unit, (v) => { state.unit = v; }),
        toggle("log axis", logPpl, (v) => { state.logPpl = v; })), runLegend(null, true));
    const grid = el("div", {class: "grid"});
    for (const set of sets) {
        grid.append(figure(tern.plot(`Held-out perplexity on ${set}`, 270, () => {
            const base = runs.filter((r) => r.baseline), own = runs.filter((r) => !r.baseline);
            return {
                lines: own.map((r) => setLine(r, set)).filter(Boolean),
                levels: base.flatMap((r) => { const o = r.held_out.find((h) => h.set === set), e = o && o[state.unit + "_ends"];
                    return e ? [{key: r.key, name: r.label, color: r.color, y: e.last}] : []; }),
                x: axes[state.x], y: {label: state.unit === "ppl" ? "perplexity per token" : "perplexity per byte", unit: tern.plainUnit}, logY: logPpl(),
            };
        }), set));
    }
    s.append(grid);
    const body = el("div", {});
    refreshes.push(() => {
        const rows = sets.flatMap((set) => runs.map((r) => {
            const o = r.held_out.find((h) => h.set === set), e = o && o[state.unit + "_ends"];
            return e && row(set, [runName(r), number(e.first), number(e.best), number(e.best_step), number(e.last),
                e.first_step === e.last_step ? "\u2013" : "\u00d7 " + number(e.last / e.first, 3)], tern.hidden.has(r.key) && "off");
        }).filter(Boolean));
        body.replaceChildren(table(["set", "run", "first", "best", "at step", "last", "last / first"], rows, "numbers second"));
    });
    s.append(body);
};

/* ---------------------------------------------------------------- training loss */

const trainingLoss = () => {
    if (!runs.some((r) => r.curves.loss)) return;
    const s = section("loss", "Training loss");
    const value = el("output", {}, "none");
    const slider = el("input", {type: "range", min: 0, max: 100, value: state.smooth, step: 1, "aria-label": "smoothing", oninput: () => { state.smooth = Number(slider.value); draw(); }});
    refreshes.push(() => {
        const last = Math.max(...runs.map((r) => r.curves.loss ? r.curves.loss.step[r.curves.loss.step.length - 1] : 0));
        value.textContent = state.smooth ? `half-life ${number(Math.max(1, Math.round(last * (state.smooth / 100) ** 2 * 0.2)))} steps` : "none";
    });
    s.append(el("div", {class: "tools"}, xChoice(), toggle("log axis", () => state.logLoss, (v) => { state.logLoss = v; }),
        el("label", {class: "choice smooth"}, el("span", {class: "label"}, "smoothing"), slider, value)), runLegend(markLegend()));
    s.append(figure(tern.plot("Training loss", 340, () => ({
        lines: runs.map((r) => curveLine(r, "loss", {smooth: state.smooth, marks: true})).filter(Boolean),
        levels: [], x: axes[state.x], y: {label: "training loss (nats per token)", unit: tern.plainUnit}, logY: state.logLoss,
    }))));
    const more = [["grad_norm", "gradient norm", true], ["lr", "learning rate", false]].filter(([m]) => runs.some((r) => r.curves[m]));
    const grid = el("div", {class: "grid"});
    for (const [metric, label, log] of more) {
        grid.append(figure(tern.plot(label, 210, () => ({lines: runs.map((r) => curveLine(r, metric, {smooth: 0})).filter(Boolean), levels: [],
            x: axes[state.x], y: {label, unit: tern.plainUnit}, logY: log}))));
    }
    s.append(grid);
    const note = thinned(["loss", "grad_norm", "lr"]);
    if (note) s.append(note);
};

/* ---------------------------------------------------------------- throughput and phases */

const phases = [["data_seconds", "data", 4], ["forward_seconds", "forward", 5], ["backward_seconds", "backward", 0], ["comm_seconds", "communication", 1], ["update_seconds", "update", 3]];
const meanOf = (c) => {
    let sum = 0, n = 0;
    c.value.forEach((v, i) => { if (v !== null) { const k = c.count ? c.count[i] : 1; sum += v * k; n += k; } });
    return n ? sum / n : 0;
};
/* A bar of parts, which add up to the whole: [[value, color, name]]. */
const bar = (parts, whole) => {
    let at = 0;
    return el("svg:svg", {class: "bar", viewBox: "0 0 1000 20", preserveAspectRatio: "none", role: "img",
        "aria-label": parts.map(([v, , name]) => `${tern.clean(name)} ${percent(v / whole)}`).join(", ")},
        parts.map(([v, color, name]) => {
            const x = at / whole * 1000;
            at += v;
            return el("svg:rect", {x, y: 0, width: Math.max(0, v / whole * 1000), height: 20, class: "fill " + tern.colorOf(color),
                onpointermove: (e) => tern.showTip(e.clientX, e.clientY, `${name}: ${percent(v / whole)}, ${seconds(v)}`), onpointerleave: tern.hideTip});
        }));
};
const boxes = (items) => el("div", {class: "legend boxes"}, items.map(([name, color]) => el("span", {class: "key"}, tern.swatch(color, "box"), " ", name)));

const throughput = () => {
    const own = runs.filter((r) => r.curves.tokens_per_second), parted = runs.filter((r) => phases.some(([m]) => r.curves[m]));
    if (!own.length && !parted.length) return;
    const s = section("throughput", "Throughput and phases of a step");
    if (own.length) {
        s.append(el("div", {class: "tools"}, xChoice()), runLegend(), figure(tern.plot("Throughput", 250, () => ({
            lines: runs.map((r) => curveLine(r, "tokens_per_second", {})).filter(Boolean), levels: [], x: axes[state.x], y: {label: "tokens/s", unit: tern.countUnit}, logY: false,
        }))));
    }
    if (parted.length) {
        s.append(el("h3", {}, "Mean time of a step, by phase"), boxes(phases.filter(([m]) => parted.some((r) => r.curves[m])).map(([, name, color]) => [name, color])));
        s.append(table(null, parted.map((r) => {
            const parts = phases.filter(([m]) => r.curves[m]).map(([m, name, color]) => [meanOf(r.curves[m]), color, name]), whole = parts.reduce((a, p) => a + p[0], 0);
            return row(r.label, [bar(parts, whole || 1), seconds(whole)], "barred");
        }), "bars"));
        const shown = () => parted.find((r) => r.id === state.phases) || parted[0]; /* the chosen one may have gone */
        s.append(el("div", {class: "tools"}, choice("phases of", parted.map((r) => [r.id, r.label]), () => shown().id, (v) => { state.phases = v; })),
            legend(phases.filter(([m]) => parted.some((r) => r.curves[m])).map(([m, name, color]) => ({key: m, color, name}))));
        s.append(figure(tern.plot("Phases of a step", 230, () => ({
            lines: phases.map(([m, name, color]) => curveLine(shown(), m, {key: m, name, color, show: seconds})).filter(Boolean),
            levels: [], x: axes[state.x], y: {label: "seconds a step", unit: tern.plainUnit}, logY: true,
        }))));
    }
    const note = thinned(["tokens_per_second", ...phases.map((p) => p[0])]);
    if (note) s.append(note);
};

/* ---------------------------------------------------------------- attempts */

const outcomeColor = (a) => !a.outcome ? (a.ended === "it is running" ? 0 : 1) : a.outcome === "done" ? 2 : ["time_limit", "preempted", "reservation", "halted", "continued"].includes(a.outcome) ? 4 : 1;
const outcomeNames = [["done", 2], ["running", 0], ["stopped, to be continued", 4], ["failed, or without an end", 1]];
const stamp = (iso) => iso ? Date.parse(iso) / 1000 : null;

/* Attempts as bars over the time since the run's first began. */
const timeline = (r, begin, whole, width) => {
    const left = 8, right = width - 8, at = (t) => left + (t - begin) / (whole || 1) * (right - left);
    const svg = el("svg:svg", {class: "timeline", viewBox: `0 0 ${width} 56`, role: "img", "aria-label": tern.clean(`Attempts of ${r.label}`)});
    const newest = stamp(r.updated);
    for (const a of r.attempt_rows) {
        const from = stamp(a.begin), to = stamp(a.end) || newest;
        if (!from) continue;
        const w = Math.max(2, at(to) - at(from)), name = `attempt ${a.attempt}`;
        svg.append(el("svg:rect", {x: at(from), y: 18, width: w, height: 18, rx: 2, class: "fill " + tern.colorOf(outcomeColor(a)),
            onpointermove: (e) => tern.showTip(e.clientX, e.clientY, el("b", {}, name + (a.kind && a.kind !== "train" ? ` (${a.kind})` : "")), el("div", {}, `${time(a.begin)}, ${seconds(to - from)}`),
                a.nodes && el("div", {}, a.nodes), a.first_step !== null && el("div", {}, `steps ${number(a.first_step)} to ${number(a.last_step)}`), el("div", {}, a.ended)),
            onpointerleave: tern.hideTip}));
        if (w > 16) svg.append(el("svg:text", {class: "number", x: at(from) + w / 2, y: 31, "text-anchor": "middle"}, a.attempt));
        if (a.nodes && w > 7 * a.nodes.length) svg.append(el("svg:text", {class: "nodes", x: at(from) + w / 2, y: 50, "text-anchor": "middle"}, a.nodes));
        for (const e of a.evidence) {
            const t = stamp(e.time);
            if (t) svg.append(el("svg:path", {class: "event " + (e.severity === "error" || e.type === "check" ? "c1" : "c4"), d: `M${at(t)} 17l-4.5 -8h9z`,
                onpointermove: (p) => tern.showTip(p.clientX, p.clientY, el("b", {}, `${time(e.time)} ${e.kind || ""}`), el("div", {}, (e.node ? e.node + ": " : "") + (e.text || e.verdict || ""))), onpointerleave: tern.hideTip}));
        }
    }
    for (const c of r.checkpoints) {
        const t = stamp(c.time);
        if (t) svg.append(el("svg:line", {class: "tick", x1: at(t), x2: at(t), y1: 37, y2: 41}));
    }
    return svg;
};
const timeAxis = (whole, width) => {
    const u = tern.timeUnit(whole), t = tern.ticks(0, whole / u.by, width / 110), at = (v) => 8 + v * u.by / whole * (width - 16);
    return el("svg:svg", {class: "timeline", viewBox: `0 0 ${width} 44`, "aria-hidden": true}, el("svg:line", {class: "tick", x1: 8, x2: width - 8, y1: 4, y2: 4}),
        t.list.map((v) => [el("svg:line", {class: "tick", x1: at(v), x2: at(v), y1: 4, y2: 8}),
            el("svg:text", {x: Math.max(4 * tern.tickText(v, t.step).length, Math.min(width - 4 * tern.tickText(v, t.step).length, at(v))), y: 21, "text-anchor": "middle"}, tern.tickText(v, t.step))]),
        el("svg:text", {x: width / 2, y: 38, "text-anchor": "middle"}, `time since the run began (${u.name})`));
};
const attempts = () => {
    const s = section("attempts", "Attempts, nodes and failures", "An attempt is one launch of the run's ranks. Bars begin with the run; triangles are warnings and errors, ticks checkpoints.");
    const all = runs.map((r) => [r, Math.min(...r.attempt_rows.map((a) => stamp(a.begin) || Infinity)), stamp(r.updated)]).filter(([, b]) => Number.isFinite(b));
    const whole = Math.max(1, ...all.map(([r, b, e]) => Math.max(e, ...r.attempt_rows.map((a) => stamp(a.end) || 0)) - b));
    s.append(boxes(outcomeNames.filter(([, c]) => runs.some((r) => r.attempt_rows.some((a) => outcomeColor(a) === c)))));
    const lines = el("div", {class: "timelines"});
    const fill = () => lines.replaceChildren(...all.map(([r, b]) => el("div", {}, el("h3", {}, r.label), timeline(r, b, whole, Math.max(300, lines.clientWidth || 640)))),
        timeAxis(whole, Math.max(300, lines.clientWidth || 640)));
    s.append(lines);
    new ResizeObserver(fill).observe(lines);
    fill();
    const rows = runs.flatMap((r) => r.attempt_rows.map((a) => row(r.label, [
        a.attempt, words(a.nodes || "\u2013"), time(a.begin), a.end && a.begin ? seconds(stamp(a.end) - stamp(a.begin)) : "\u2013",
        a.first_step === null ? "\u2013" : `${number(a.first_step)} to ${number(a.last_step)}`,
        words([el("div", {}, a.ended), a.lost_steps > 0 && el("div", {}, `lost: ${number(a.lost_steps)} steps` + (a.lost_seconds ? `, ${seconds(a.lost_seconds)}` : "")),
            a.evidence.map((e) => el("div", {class: "evidence"}, `${e.time ? e.time.slice(11, 19) + " " : ""}${e.kind || ""}${e.node ? " on " + e.node : ""}: ${e.text || e.verdict || ""}`))])])));
    s.append(stack(["run", "attempt", "nodes", "began", "took", "steps", "end"], rows));
};

/* ---------------------------------------------------------------- tables */

const checkpoints = () => {
    if (!runs.some((r) => r.checkpoints.length)) return;
    const s = section("checkpoints", "Checkpoints");
    const rows = runs.flatMap((r) => r.checkpoints.map((c) => row(r.label, [number(c.step), c.state || "\u2013", c.attempt, c.effective ? "yes" : "no", c.bytes ? bytes(c.bytes) : "\u2013", time(c.time), words(c.path)])));
    s.append(stack(["run", "step", "state", "attempt", "counts", "size", "made", "path"], rows, "scroll"));
    const left = runs.filter((r) => r.checkpoints_all > r.checkpoints.length);
    if (left.length) s.append(el("p", {class: "note"}, "The newest are shown: " + left.map((r) => `${r.label} has ${number(r.checkpoints_all)}`).join(", ") + "."));
    s.append(el("p", {class: "note"}, "One that does not count was made by an attempt behind the step from which a later one began."));
};
const mix = () => {
    if (!runs.some((r) => r.mix.length)) return;
    const s = section("mix", "Data mix", "Share of samples as the recipe plans it (outline) and as the run has had it (filled), up to the newest checkpoint.");
    const rows = runs.flatMap((r) => {
        const all = r.mix.reduce((a, m) => a + m.samples, 0) || 1;
        return r.mix.map((m) => row(r.label, [words(m.set), el("svg:svg", {class: "mixbar " + tern.colorOf(r.color), viewBox: "0 0 1000 20", preserveAspectRatio: "none", "aria-hidden": true},
            el("svg:rect", {class: "fill", x: 0, y: 4, height: 12, width: m.samples / all * 1000}),
            m.planned !== null && el("svg:rect", {class: "outline", x: 0, y: 1, height: 18, width: m.planned * 1000})),
            percent(m.planned), percent(m.samples / all), number(m.samples), short(m.tokens), number(m.epochs, 4)]));
    });
    s.append(stack(["run", "set", "", "planned", "was", "samples", "tokens", "epochs"], rows));
};
const parts = [["training", "training that counts", 2], ["repeated", "steps done again", 1], ["checkpoint", "checkpoints", 4], ["startup", "startup", 5], ["waiting", "between attempts", 3], ["other", "evaluations, other", 6]];
const goodput = () => {
    const s = section("cost", "Goodput and cost", "The parts of a run's time, from its beginning to its end or newest record. Node-hours are those of all attempts.");
    const known = runs.filter((r) => r.goodput.goodput !== null);
    if (known.length) {
        s.append(boxes(parts.map(([, name, color]) => [name, color])), table(null, known.map((r) => row(r.label,
            [bar(parts.map(([k, name, color]) => [r.goodput[k + "_seconds"], color, name]), r.goodput.wall_seconds || 1), percent(r.goodput.goodput)], "barred")), "bars"));
    }
    const money = runs.some((r) => r.cost.usd !== null);
    s.append(table(["run", "time", "goodput", "steps again", "nodes", "node-hours", "rank-hours", "tokens", ...(money ? ["USD", "USD per million tokens"] : [])],
        runs.map((r) => row(r.label, [seconds(r.goodput.wall_seconds), percent(r.goodput.goodput), number(r.goodput.repeated_steps), number(r.cost.nodes), number(r.cost.node_hours, 4), number(r.cost.rank_hours, 4), short(r.cost.tokens),
            ...(money ? [number(r.cost.usd, 4), number(r.cost.usd_per_million_tokens, 4)] : [])])), "numbers"));
    if (money) s.append(el("p", {class: "note"}, `At ${number(page.usd_hour)} USD for a node and hour.`));
};
const recipes = () => {
    const s = section("recipes", runs.length > 1 ? "Differences of the recipes" : "Recipe");
    if (runs.length > 1 && page.recipe.length) {
        s.append(table(["key", ...runs.map(runName)], page.recipe.map((d) => row(d.key, d.values.map((v) => v === null ? "\u2013" : words(v)))), "keys"));
    } else if (runs.length > 1) s.append(el("p", {}, "There is no difference."));
    for (const r of runs) if (r.recipe) s.append(el("details", {open: state.recipes.has(r.id), ontoggle: (e) => state.recipes[e.target.open ? "add" : "delete"](r.id)}, el("summary", {}, `recipe of ${r.label}`), el("pre", {}, r.recipe)));
};

/* ---------------------------------------------------------------- the page */

document.getElementById("made").textContent = `${runs.length === 1 ? "One run" : runs.length + " runs"} of a tern ledger, as of ${time(page.made)}. ` +
    "Point at a curve for its values; drag to zoom, double-click to return; click a name to hide it.";
tern.hideTip();
main.replaceChildren();
[summary, heldOut, trainingLoss, throughput, attempts, checkpoints, mix, goodput, recipes].forEach((f) => f());
draw();
};

/* ---------------------------------------------------------------- a page that is served */

/* The server is asked again and again; what has not changed is not sent. */
const serve = () => {
    const chosen = new Set(), told = el("p", {class: "note", role: "status"}), box = el("nav", {class: "runs"});
    let stamp = "", names = "";
    document.querySelector("header").append(told, box);
    const ask = async (what, query) => {
        const r = await fetch(what + (query ? "?" + query : ""), {cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer"});
        if (!r.ok) throw new Error(`${r.status}: ${(await r.text()).slice(0, 300)}`);
        return r.json();
    };
    const list = async () => {
        const rows = await ask("list"), now = JSON.stringify([rows, [...chosen]]);
        if (now === names) return;
        names = now;
        box.replaceChildren(el("details", {open: box.querySelector("details[open]") ? "" : null}, el("summary", {}, `${rows.length} runs: choose`), rows.map((r) =>
            el("button", {type: "button", "aria-pressed": String(chosen.has(r.id)), "data-run": r.id, onclick: () => {
                if (!chosen.delete(r.id)) chosen.add(r.id);
                stamp = names = "";
                tern.hidden.clear();
                zooms.clear();
                look();
            }}, `${r.name || r.id} (${r.state || "?"}, ${r.step === null ? "no step" : "step " + number(r.step)})`))));
    };
    let looking = false;
    const look = async () => {
        if (looking) return;
        looking = true;
        try {
            const asked = [...chosen].map((id) => "run=" + encodeURIComponent(id)).join("&");
            const d = await ask("data", asked + (stamp ? (asked && "&") + "have=" + encodeURIComponent(stamp) : ""));
            if (d.stamp !== stamp) {
                const at = window.scrollY;
                show(d.runs, d.page);
                window.scrollTo(0, at);
                stamp = d.stamp;
            }
            await list();
            told.textContent = `Looks for news every ${live.every} s.`;
        } catch (e) {
            told.textContent = `No news since ${new Date().toLocaleTimeString()}: ${e.message}`;
        }
        looking = false;
    };
    setInterval(() => { if (!document.hidden) look(); }, 1000 * live.every);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
    look();
};
if (live) serve();
else show(data("run"), data("page")[0]);
})();
