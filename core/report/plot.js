/* Curves in SVG: axes, bands, marks, values under the pointer, zoom.  SVG, since a page then prints
 * as vectors and takes its colours from page.css, in the light and in the dark.
 *
 *     const p = tern.plot(label, height, () => picture);
 *     somewhere.append(p.node);      p.draw() after the picture has changed
 *
 * A picture: {lines, levels, x, y, logY}.
 *   lines   [{key, name, color, x, y, low, high, faint, marks, bad, tip}]: lists of one length;
 *           x does not decrease, y is null where it is not finite.  low and high, if there, are a
 *           band; faint is drawn behind the line; marks [{x, kind, text}]; tip(i) the words for
 *           point i: [value, range, place].
 *   levels  [{key, name, color, y}]: horizontal lines
 *   x, y    {label, unit}: unit(most) gives {by, name}: ticks are divided by it
 * Texts come from ledgers: they reach the page by textContent alone, through tern.clean. */
"use strict";
const tern = {hidden: new Set()};

/* Control characters and those that turn the direction of writing, which can hide a text. */
tern.clean = (s) => String(s).replace(
    /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

/* An element of HTML, or of SVG where the name begins with "svg:". */
tern.el = (name, attributes, ...children) => {
    const svg = name.startsWith("svg:");
    const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4))
                  : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
        if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
        else if (value !== undefined && value !== null && value !== false) {
            e.setAttribute(key, value === true ? "" : value);
        }
    }
    for (const c of children.flat(3)) {
        if (c === null || c === undefined || c === false) continue;
        e.append(c instanceof Node ? c : tern.clean(c));
    }
    return e;
};

/* ---------------------------------------------------------------- numbers */

tern.group = (s) => s.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/* At most `digits` significant ones; thousands are grouped. */
tern.number = (v, digits = 5) => {
    if (v === null || v === undefined || !Number.isFinite(v)) return "\u2013";
    if (v === 0) return "0";
    const size = Math.abs(v);
    if (Number.isInteger(v) && size < 1e15) return tern.group(String(v));
    if (size >= 1e15 || size < 1e-4) return String(Number(v.toPrecision(3))).replace("e+", "e");
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    const [whole, part] = v.toFixed(Math.min(places, 12)).split(".");
    const rest = part ? part.replace(/0+$/, "") : "";
    return tern.group(whole) + (rest ? "." + rest : "");
};

/* Units of axes: the one in which the greatest tick has few digits. */
const counts = [[1e12, "trillions"], [1e9, "billions"], [1e6, "millions"], [1e4, "thousands", 1e3]];
const times = [[2 * 86400, "days", 86400], [2 * 3600, "hours", 3600], [180, "minutes", 60]];
const pick = (table, last) => (most) => {
    for (const [from, name, by] of table) if (most >= from) return {by: by || from, name};
    return {by: 1, name: last};
};
tern.countUnit = pick(counts, "");
tern.timeUnit = pick(times, "seconds");
tern.plainUnit = () => ({by: 1, name: ""});

/* Values beyond it are drawn at the edge: products of them and of pixels stay numbers. */
const HUGE = 1e300;

/* Round places in [lo, hi], at most about `n`, in multiples of `least`. */
const linearTicks = (lo, hi, n, least = 0) => {
    const rough = Math.max(least, (hi - lo) / Math.max(1, n));
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999 && (!least || Math.abs(s / least % 1) < 1e-6));
    const list = [];
    /* A count from the first: k + 1 would be k where a range is narrow and far from 0. */
    const from = Math.ceil(lo / step - 1e-9), count = Math.min(100, Math.floor(hi / step + 1e-9) - from + 1);
    for (let i = 0; i < count; i++) list.push((from + i) * step);
    return {list, step};
};
const logTicks = (lo, hi, n) => {
    const decades = Math.log10(hi) - Math.log10(lo); /* hi / lo may be too large for a number */
    if (decades < 0.5) return linearTicks(lo, hi, n);
    const every = Math.max(1, Math.ceil(decades / n));
    const of = (digits) => {
        const list = [];
        for (let d = Math.floor(Math.log10(lo)); d <= Math.ceil(Math.log10(hi)); d++) {
            if (d % every === 0) list.push(...digits.map((m) => m * 10 ** d).filter((v) => v >= lo && v <= hi));
        }
        return list;
    };
    /* Of one decade several digits, as many as there is room for. */
    const list = [[1, 2, 3, 5], [1, 2, 5], [1, 3], [1]].map(of).find((l) => l.length <= n + 1) || of([1]);
    return list.length > 1 ? {list, step: 0} : linearTicks(lo, hi, n);
};
tern.ticks = linearTicks;
const tickText = tern.tickText = (v, step) => {
    if (!step) return tern.number(v, 3);
    const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    /* A step of 2.5 has one place more than its power of ten. */
    const more = Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) > 1e-6 ? 1 : 0;
    const [whole, part] = v.toFixed(Math.min(places + more, 12)).split(".");
    return tern.group(whole === "-0" && !part ? "0" : whole) + (part ? "." + part : "");
};

/* The index of the x nearest to `at`; -1: there is none. */
const nearest = (x, at) => {
    let lo = 0, hi = x.length - 1;
    if (hi < 0) return -1;
    while (hi - lo > 1) {
        const mid = (lo + hi) >> 1;
        if (x[mid] < at) lo = mid;
        else hi = mid;
    }
    return Math.abs(x[lo] - at) <= Math.abs(x[hi] - at) ? lo : hi;
};

/* The y of a line at `at`, between its points. */
tern.between = (x, y, at) => {
    if (!x.length || at < x[0] || at > x[x.length - 1]) return null;
    let lo = 0, hi = x.length - 1;
    while (hi - lo > 1) {
        const mid = (lo + hi) >> 1;
        if (x[mid] <= at) lo = mid;
        else hi = mid;
    }
    if (y[lo] === null || y[hi] === null) return x[lo] === at ? y[lo] : y[hi];
    return x[hi] === x[lo] ? y[hi] : y[lo] + (y[hi] - y[lo]) * (at - x[lo]) / (x[hi] - x[lo]);
};

/* ---------------------------------------------------------------- the words under the pointer */

const tip = tern.el("div", {id: "tip", role: "status", hidden: true});
tern.showTip = (clientX, clientY, ...children) => {
    if (!tip.isConnected) document.body.append(tip);
    tip.replaceChildren(...children.flat());
    tip.hidden = false;
    const box = tip.getBoundingClientRect(), wide = document.documentElement.clientWidth;
    const left = clientX + 16 + box.width > wide - 4 ? clientX - 16 - box.width : clientX + 16;
    tip.style.left = Math.max(4, Math.min(left, wide - box.width - 4)) + window.scrollX + "px";
    const top = clientY - box.height - 12;
    tip.style.top = (top < 4 ? clientY + 20 : top) + window.scrollY + "px";
};
tern.hideTip = () => { tip.hidden = true; };

tern.colorOf = (i) => "c" + i % 7;
const dashes = [null, "6 3", "2 3", "8 3 2 3"];
tern.dashOf = (i) => dashes[Math.floor(i / 7) % dashes.length];
tern.swatch = (i, mark) => tern.el("svg:svg", {class: "swatch " + tern.colorOf(i), width: 22, height: 12, "aria-hidden": true},
    mark === "box" ? tern.el("svg:rect", {x: 4, y: 1, width: 11, height: 10, class: "fill"})
                   : tern.el("svg:line", {x1: 1, y1: 6, x2: 21, y2: 6, class: "line", "stroke-dasharray": mark === "level" ? "2 3" : tern.dashOf(i)}));

/* ---------------------------------------------------------------- a plot */

class Plot {
    constructor(label, height, picture) {
        this.picture = picture;
        this.height = height;
        this.zoom = null;
        this.svg = tern.el("svg:svg", {class: "plot", role: "img", tabindex: 0, "aria-label": tern.clean(label)});
        this.node = tern.el("div", {class: "frame"}, this.svg);
        const on = (name, f) => this.svg.addEventListener(name, f);
        on("pointerdown", (e) => this.press(e));
        on("pointermove", (e) => this.move(e));
        on("pointerup", (e) => this.release(e));
        on("pointercancel", () => { this.from = null; this.leave(); });
        on("pointerleave", () => { if (!this.from) this.leave(); });
        on("dblclick", () => this.setZoom(null));
        on("keydown", (e) => this.key(e));
        on("blur", () => this.leave());
        new ResizeObserver(() => {
            if (this.node.clientWidth && this.node.clientWidth !== this.width) this.draw();
        }).observe(this.node);
    }

    setZoom(zoom) {
        this.zoom = zoom;
        if (this.kept) this.kept(zoom);
        this.leave();
        this.draw();
    }

    /* Least and greatest of what is seen. */
    ranges() {
        const p = this.now, span = (v) => { let a = Infinity, b = -Infinity;
            for (const one of v) { if (one < a) a = one; if (one > b) b = one; }
            return [a, b]; };
        let x = this.zoom || span(this.lines.flatMap((l) => l.x.length ? [l.x[0], l.x[l.x.length - 1]] : []));
        if (!Number.isFinite(x[0])) x = [0, 1];
        if (x[0] === x[1]) x = [x[0] - (Math.abs(x[0]) / 10 || 1), x[1] + (Math.abs(x[1]) / 10 || 1)];
        if (!this.zoom && x[0] > 0 && x[0] < 0.03 * x[1]) x = [0, x[1]];
        const values = [];
        for (const l of this.lines) {
            for (let i = 0; i < l.x.length; i++) {
                if (l.x[i] < x[0] || l.x[i] > x[1] || l.y[i] === null) continue;
                values.push(l.y[i]);
                if (l.low && l.low[i] !== null) values.push(l.low[i], l.high[i]);
                if (l.faint && l.faint[i] !== null) values.push(l.faint[i]);
            }
        }
        for (const l of this.levels) values.push(l.y);
        let y = span(p.logY ? values.filter((v) => v > 0) : values);
        if (!Number.isFinite(y[0])) y = p.logY ? [0.1, 1] : [0, 1];
        /* Means of equal values differ in their last bits. */
        const flat = y[1] - y[0] <= 1e-9 * Math.max(Math.abs(y[0]), Math.abs(y[1]));
        if (p.logY) {
            const pad = flat ? 1.2 : Math.exp((Math.log(y[1]) - Math.log(y[0])) * 0.05);
            y = [Math.max(y[0] / pad, 1 / HUGE), Math.min(y[1] * pad, HUGE)];
        } else {
            y = y.map((v) => Math.max(-HUGE, Math.min(HUGE, v)));
            const pad = flat ? Math.abs(y[0]) * 0.1 || 1 : (y[1] - y[0]) * 0.06;
            y = [y[0] >= 0 && y[0] < pad ? 0 : y[0] - pad, y[1] + pad];
        }
        return {x, y};
    }

    draw() {
        this.now = this.picture();
        if (this.kind !== this.now.x.label) this.zoom = null;
        this.kind = this.now.x.label;
        this.lines = this.now.lines.filter((l) => !tern.hidden.has(l.key));
        this.levels = this.now.levels.filter((l) => !tern.hidden.has(l.key));
        const w = this.width = this.node.clientWidth || 640, h = this.height;
        const r = this.range = this.ranges();
        const xu = this.xUnit = this.now.x.unit(Math.max(Math.abs(r.x[0]), Math.abs(r.x[1])));
        const yu = this.now.y.unit(Math.max(Math.abs(r.y[0]), Math.abs(r.y[1])));
        const yTicks = (this.now.logY ? logTicks : linearTicks)(r.y[0] / yu.by, r.y[1] / yu.by, (h - 60) / (this.now.logY ? 30 : 42));
        const yTexts = yTicks.list.map((v) => tickText(v, yTicks.step));
        const left = 32 + 7 * Math.max(1, ...yTexts.map((t) => t.length)), right = w - 14, top = 10, bottom = h - 42;
        this.box = {left, right, top, bottom};
        const xTicks = linearTicks(r.x[0] / xu.by, r.x[1] / xu.by, Math.max(2, (right - left) / 85), this.now.x.label === "step" ? 1 / xu.by : 0);
        const log = this.now.logY ? Math.log : (v) => v;
        this.px = (v) => left + (v - r.x[0]) / (r.x[1] - r.x[0]) * (right - left);
        this.py = (v) => bottom - (log(Math.max(-2 * HUGE, Math.min(2 * HUGE, v))) - log(r.y[0])) / (log(r.y[1]) - log(r.y[0])) * (bottom - top);
        const axes = tern.el("svg:g", {class: "axes"});
        xTicks.list.forEach((v) => {
            const at = this.px(v * xu.by), text = tickText(v, xTicks.step), half = 3.4 * text.length;
            axes.append(tern.el("svg:line", {x1: at, x2: at, y1: bottom, y2: bottom + 4}),
                tern.el("svg:text", {x: Math.min(at, w - half - 1), y: bottom + 17, "text-anchor": "middle"}, text));
        });
        yTicks.list.forEach((v, i) => {
            const at = this.py(v * yu.by);
            axes.append(tern.el("svg:line", {class: "grid", x1: left, x2: right, y1: at, y2: at}),
                tern.el("svg:text", {x: left - 6, y: at + 4, "text-anchor": "end"}, yTexts[i]));
        });
        const named = (axis, u) => axis.label + (u.name ? ` (${u.name})` : "");
        axes.append(tern.el("svg:line", {class: "base", x1: left, x2: right, y1: bottom, y2: bottom}),
            tern.el("svg:text", {class: "name", x: (left + right) / 2, y: h - 6, "text-anchor": "middle"}, named(this.now.x, xu)),
            tern.el("svg:text", {class: "name", transform: `translate(13 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle"}, named(this.now.y, yu)));
        this.overlay = tern.el("svg:g", {class: "overlay"});
        this.svg.setAttribute("viewBox", `0 0 ${w} ${h}`);
        this.svg.replaceChildren(axes, ...this.levels.map((l) => this.drawLevel(l)),
            ...this.lines.map((l) => this.drawLine(l)), this.overlay);
        if (!this.lines.some((l) => l.x.length)) {
            this.svg.append(tern.el("svg:text", {class: "empty", x: (left + right) / 2, y: (top + bottom) / 2, "text-anchor": "middle"}, "no values on this axis"));
        }
        this.node.classList.toggle("zoomed", !!this.zoom);
    }

    /* "M x y L x y": points in view and one on each side; a null breaks the line. */
    path(x, y) {
        const [a, b] = this.range.x, log = this.now.logY;
        let from = 0, to = x.length, text = "", pen = false;
        while (from + 1 < to && x[from + 1] < a) from++;
        while (to - 1 > from && x[to - 2] > b) to--;
        for (let i = from; i < to; i++) {
            if (y[i] === null || (log && y[i] <= 0)) { pen = false; continue; }
            text += (pen ? "L" : "M") + this.px(x[i]).toFixed(1) + " " + this.py(y[i]).toFixed(1);
            pen = true;
        }
        return text;
    }

    band(l) {
        const log = this.now.logY, there = [];
        for (let i = 0; i < l.x.length; i++) {
            if (l.low[i] !== null && l.x[i] >= this.range.x[0] && l.x[i] <= this.range.x[1] && !(log && l.low[i] <= 0)) there.push(i);
        }
        if (there.length < 2) return "";
        const at = (i, v) => this.px(l.x[i]).toFixed(1) + " " + this.py(v[i]).toFixed(1);
        return "M" + there.map((i) => at(i, l.high)).join("L") + "L" + there.reverse().map((i) => at(i, l.low)).join("L") + "Z";
    }

    inside(x) { return x >= this.range.x[0] && x <= this.range.x[1]; }

    drawLine(l) {
        const b = this.box, id = "clip" + (Plot.clips = (Plot.clips || 0) + 1);
        const g = tern.el("svg:g", {class: "curve " + tern.colorOf(l.color), "data-key": tern.clean(l.key)},
            tern.el("svg:clipPath", {id}, tern.el("svg:rect", {x: b.left - 3, y: b.top - 6, width: Math.max(0, b.right - b.left + 6), height: b.bottom - b.top + 9})));
        const body = tern.el("svg:g", {"clip-path": `url(#${id})`});
        if (l.low) body.append(tern.el("svg:path", {class: "band", d: this.band(l)}));
        if (l.faint) body.append(tern.el("svg:path", {class: "line faint", d: this.path(l.x, l.faint)}));
        body.append(tern.el("svg:path", {class: "line", d: this.path(l.x, l.y), "stroke-dasharray": tern.dashOf(l.color)}));
        g.append(body);
        if (l.dots) {
            l.x.forEach((x, i) => {
                if (l.y[i] !== null && this.inside(x)) body.append(tern.el("svg:circle", {class: "dot", cx: this.px(x), cy: this.py(l.y[i]), r: 2.6}));
            });
        }
        let last = -Infinity;
        for (const m of l.marks || []) {
            const at = this.px(m.x);
            if (!this.inside(m.x)) continue;
            if (m.kind === "restart") {
                g.append(tern.el("svg:line", {class: "restart", x1: at, x2: at, y1: b.top, y2: b.bottom}));
                continue;
            }
            const y = tern.between(l.x, l.y, m.x);
            if (y === null || at - last < 7) continue; /* no heap of marks */
            last = at;
            g.append(tern.el("svg:path", {class: "checkpoint", d: `M${at.toFixed(1)} ${(this.py(y) - 4.5).toFixed(1)}l4.5 4.5l-4.5 4.5l-4.5 -4.5z`}));
        }
        for (const x of l.bad || []) {
            if (this.inside(x)) g.append(tern.el("svg:path", {class: "bad", d: `M${this.px(x) - 4} ${b.top - 4}l8 8m0 -8l-8 8`}));
        }
        return g;
    }

    drawLevel(l) {
        const at = this.py(l.y);
        return tern.el("svg:line", {class: "level " + tern.colorOf(l.color), x1: this.box.left, x2: this.box.right, y1: at, y2: at, "data-key": tern.clean(l.key)});
    }

    /* ---- the pointer */

    /* Where in the plot, in its own units. */
    at(e) {
        const r = this.svg.getBoundingClientRect();
        return (e.clientX - r.left) * this.width / r.width;
    }
    value(px) {
        const b = this.box, r = this.range.x;
        return r[0] + (Math.max(b.left, Math.min(b.right, px)) - b.left) / (b.right - b.left) * (r[1] - r[0]);
    }
    press(e) {
        if (e.button) return;
        this.from = {px: this.at(e), id: e.pointerId};
        this.svg.setPointerCapture(e.pointerId);
    }
    move(e) {
        const px = this.at(e), b = this.box;
        if (this.from && Math.abs(px - this.from.px) > 4) {
            const [x0, x1] = [px, this.from.px].map((v) => Math.max(b.left, Math.min(b.right, v))).sort((p, q) => p - q);
            this.overlay.replaceChildren(tern.el("svg:rect", {class: "drag", x: x0, y: b.top, width: x1 - x0, height: b.bottom - b.top}));
            tern.hideTip();
            return;
        }
        this.point(this.value(px), e.clientX, e.clientY);
    }
    release(e) {
        const from = this.from;
        this.from = null;
        if (!from || Math.abs(this.at(e) - from.px) < 8) return;
        const zoom = [this.value(from.px), this.value(this.at(e))].sort((p, q) => p - q);
        if (zoom[1] > zoom[0]) this.setZoom(zoom);
    }
    leave() {
        tern.hideTip();
        if (this.overlay) this.overlay.replaceChildren();
    }
    key(e) {
        if (e.key === "Escape") return this.setZoom(null);
        const by = {ArrowLeft: -1, ArrowRight: 1}[e.key], l = this.lines.find((one) => one.x.length);
        if (!by || !l) return;
        e.preventDefault();
        const seen = l.x.filter((x) => this.inside(x)), i = nearest(seen, this.cursor === undefined ? seen[0] : this.cursor);
        this.cursor = seen[Math.max(0, Math.min(seen.length - 1, i + by))];
        const r = this.svg.getBoundingClientRect(), scale = r.width / this.width;
        this.point(this.cursor, r.left + this.px(this.cursor) * scale, r.top + this.box.top * scale + 60);
    }

    /* The values near x: a dot on each line, and the words. */
    point(x, clientX, clientY) {
        const b = this.box, rows = [], dots = [];
        for (const l of this.lines) {
            const i = nearest(l.x, x);
            if (i < 0 || !this.inside(l.x[i]) || Math.abs(this.px(l.x[i]) - this.px(x)) > 30) continue;
            const color = tern.colorOf(l.color);
            if (l.y[i] !== null && !(this.now.logY && l.y[i] <= 0)) {
                dots.push(tern.el("svg:circle", {class: "hover " + color, cx: this.px(l.x[i]), cy: this.py(l.y[i]), r: 4}));
            }
            rows.push(tern.el("tr", {}, tern.el("td", {}, tern.swatch(l.color)), tern.el("th", {}, l.name), l.tip(i).map((words) => tern.el("td", {}, words))));
        }
        for (const l of rows.length ? this.levels : []) {
            rows.push(tern.el("tr", {}, tern.el("td", {}, tern.swatch(l.color, "level")), tern.el("th", {}, l.name), tern.el("td", {colspan: 3}, tern.number(l.y))));
        }
        if (!rows.length) return this.leave();
        const at = this.px(x), a = this.now.x;
        if (a.label !== "step") rows.unshift(tern.el("tr", {class: "place"}, tern.el("td", {}), tern.el("td", {colspan: 4}, `${a.label}: ${tern.number(x / this.xUnit.by, 4)} ${this.xUnit.name}`)));
        this.overlay.replaceChildren(tern.el("svg:line", {class: "cross", x1: at, x2: at, y1: b.top, y2: b.bottom}), ...dots);
        tern.showTip(clientX, clientY, tern.el("table", {}, rows));
    }
}
tern.plot = (label, height, picture) => new Plot(label, height, picture);
