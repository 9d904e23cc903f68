// Charts of a follower's last hour, of what /history answers. No chart is needed to read the page: captions have the newest values.
"use strict";

const CHARTS = {
  lag: { least: 1, columns: [["lag", "behind", "--first"]], unit: " s" },
  rate: { least: 1, columns: [["rate", "writes", "--first"]], unit: "/s" },
  latency: { least: 0.1, columns: [["p50", "half of them", "--first"], ["p99", "99 of 100", "--second"]], unit: " s" },
};
const drawn = new Map();

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function shown(value, unit) {
  if (value === null || value === undefined) return "-";
  return (value >= 100 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(2)).toString()) + unit;
}

function newest(values) {
  for (let n = values.length - 1; n >= 0; n--) if (values[n] !== null) return values[n];
  return null;
}

function drawCharts(place, history) {
  if (!history.time || !history.time.length) return;
  for (const [name, chart] of Object.entries(CHARTS)) {
    const target = place.querySelector(`[data-chart="${name}"]`);
    const columns = chart.columns.map(([column]) => history[column] || history.time.map(() => null));
    const data = [history.time, ...columns];
    const width = Math.max(120, target.clientWidth);
    const known = drawn.get(target);
    if (known && known.width === width && known.theme === color("--back")) {
      known.plot.setData(data);
      continue;
    }
    if (known) known.plot.destroy();
    target.replaceChildren();
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, font: "11px system-ui" };
    const plot = new uPlot({
      width, height: 110, legend: { show: false }, cursor: { show: false }, pxAlign: 1,
      scales: { y: { range: (_, least, most) => [0, Math.max(most || 0, chart.least) * 1.1] } },
      axes: [{ ...axis, size: 22, space: 90, values: (_, ticks) => ticks.map((t) => new Date(t * 1000).toISOString().slice(11, 19)) }, { ...axis, size: 46, space: 30, values: (_, ticks) => ticks.map((t) => shown(t, chart.unit)) }],
      series: [{}, ...chart.columns.map(([, label, stroke]) => ({ label, stroke: color(stroke), width: 1.5, spanGaps: false, points: { show: true, size: 3 } }))],
    }, data, target);
    plot.root.setAttribute("aria-hidden", "true");
    drawn.set(target, { plot, width, theme: color("--back") });
  }
  for (const output of place.querySelectorAll("output")) {
    const column = output.dataset.shows;
    const values = (history[column] || []).filter((value) => value !== null);
    const unit = column === "rate" ? "/s" : " s";
    const most = values.length ? `, at most ${shown(Math.max(...values), unit)} in the last hour` : "";
    output.textContent = `${shown(newest(history[column] || []), unit)}${most}`;
  }
}
