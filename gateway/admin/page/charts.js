// Line charts of the last minutes, drawn into an <svg>. No library, no inline style.

const SPACE = "http://www.w3.org/2000/svg";
const LEFT = 44;
const BOTTOM = 18;
const TOP = 8;

/** Draw lines into a chart.
 *
 * `series` is a list of [class, points]; a point is [age in slots, value or null], the
 * newest at age 0. `slots` is how many the chart is wide, `label` writes a value.
 */
export function draw(svg, series, { slots, slotSeconds, top, label }) {
  const width = svg.clientWidth || 600;
  const height = svg.clientHeight || 150;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const x = (age) => width - 6 - (age / (slots - 1)) * (width - LEFT - 12);
  const y = (value) => TOP + (1 - value / top) * (height - BOTTOM - TOP);
  const drawn = [...grid(width, height, y, top, label), ...ages(x, height, slots, slotSeconds)];
  for (const [name, points] of series) {
    drawn.push(...line(name, points.filter(([, value]) => value !== null), x, y));
  }
  svg.replaceChildren(...drawn);
}

/** A round number that is not below any of these values. */
export function roundUp(values) {
  const most = Math.max(0, ...values.filter((value) => value !== null));
  if (most === 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= most);
}

function grid(width, height, y, top, label) {
  return [0, 0.5, 1].flatMap((share) => {
    const at = y(share * top);
    const text = make("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" });
    text.textContent = label(share * top);
    return [make("line", { class: "grid", x1: LEFT, x2: width - 6, y1: at, y2: at }), text];
  });
}

function ages(x, height, slots, slotSeconds) {
  const minutes = (slots * slotSeconds) / 60;
  return [0, minutes / 2, minutes].map((minute) => {
    const age = Math.min((minute * 60) / slotSeconds, slots - 1);
    const anchor = minute === 0 ? "end" : minute === minutes ? "start" : "middle";
    const text = make("text", { x: x(age), y: height - 4, "text-anchor": anchor });
    text.textContent = minute === 0 ? "now" : `${minute} min ago`;
    return text;
  });
}

function line(name, points, x, y) {
  if (points.length === 1) {
    const [[age, value]] = points;
    return [make("circle", { class: name, cx: x(age), cy: y(value), r: 3 })];
  }
  const steps = points.map(([age, value], index) =>
    `${index ? "L" : "M"}${x(age).toFixed(1)} ${y(value).toFixed(1)}`);
  return points.length ? [make("path", { class: name, d: steps.join("") })] : [];
}

function make(name, attributes) {
  const element = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
