"use strict";
// Values under the pointer: of the nearest step in a figure of curves, of the mark itself elsewhere.
(() => {
  const tip = document.getElementById("tip");
  const SVG = "http://www.w3.org/2000/svg";

  function show(event, text) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect(), gap = 14;
    const right = event.clientX + gap + box.width <= window.innerWidth;
    const left = right ? event.clientX + gap : Math.max(4, event.clientX - gap - box.width);
    tip.style.left = `${left}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + gap, window.innerHeight - box.height - 4))}px`;
  }

  function nearest(steps, step) {
    let low = 0, high = steps.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] < step) low = middle; else high = middle;
    }
    return Math.abs(steps[low] - step) <= Math.abs(steps[high] - step) ? low : high;
  }

  function valueText(value) {
    if (value === null) return "not finite";
    if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(3);
    return value.toLocaleString("en", { maximumSignificantDigits: 5 });
  }

  function position(value, [low, high, start, end, log]) {
    const part = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return start + part * (end - start);
  }

  function add(parent, tag, attributes) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return parent.appendChild(node);
  }

  for (const figure of document.querySelectorAll("svg[data-hover]")) {
    const { x, y, curves } = JSON.parse(figure.dataset.hover);
    if (!curves.length) continue;
    const layer = add(figure, "g", {});
    figure.addEventListener("pointermove", (event) => {
      const place = figure.getScreenCTM().inverse();
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(place);
      layer.replaceChildren();
      if (at.x < x[2] - 8 || at.x > x[3] + 8) { tip.hidden = true; return; }
      const wanted = x[0] + (at.x - x[2]) / (x[3] - x[2]) * (x[1] - x[0]);
      const main = curves[0].steps[nearest(curves[0].steps, wanted)];
      const lines = [`step ${main.toLocaleString("en")}`];
      add(layer, "line", { x1: position(main, x), x2: position(main, x), y1: y[2], y2: y[3], class: "cross" });
      for (const { name, role, steps, values } of curves) {
        const index = nearest(steps, main), value = values[index];
        const elsewhere = steps[index] === main ? "" : ` (step ${steps[index].toLocaleString("en")})`;
        lines.push(`${name}  ${valueText(value)}${elsewhere}`);
        if (value !== null) {
          const [cx, cy] = [position(steps[index], x), position(value, y)];
          add(layer, "circle", { cx, cy, r: 4, class: `pointer ${role}` });
        }
      }
      show(event, lines.join("\n"));
    });
    figure.addEventListener("pointerleave", () => { layer.replaceChildren(); tip.hidden = true; });
  }

  for (const mark of document.querySelectorAll("[data-tip]")) {
    mark.addEventListener("pointermove", (event) => show(event, mark.dataset.tip));
    mark.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  window.addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
  document.documentElement.dataset.ready = "true";
})();
