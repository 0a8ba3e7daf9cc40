// Attention drawn on canvases, in the accent color of the page.

const FAINTEST = 0.03; // weights below this are no lines
const MOST_LINES = 1500;

/** The accent color of the page as it is now, as [red, green, blue]. */
export function accent() {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  probe.fillStyle = getComputedStyle(document.documentElement).accentColor;
  probe.fillRect(0, 0, 1, 1);
  return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

/** A small picture of the weights [s][s] of a head: a pixel for each two pieces. */
export function drawHead(canvas, weights, [red, green, blue]) {
  const size = weights.length;
  canvas.width = size;
  canvas.height = size;
  const context = canvas.getContext("2d");
  const image = context.createImageData(size, size);
  for (let from = 0; from < size; from += 1) {
    for (let to = 0; to < size; to += 1) {
      const pixel = 4 * (from * size + to);
      image.data[pixel] = red;
      image.data[pixel + 1] = green;
      image.data[pixel + 2] = blue;
      image.data[pixel + 3] = Math.round(255 * Math.sqrt(weights[from][to]));
    }
  }
  context.putImageData(image, 0, 0);
}

/** Lines from each source to each target, as strong as `weight(source, target)`; with `only`, those of one source. */
export function drawLines(canvas, sources, targets, weight, only) {
  const box = canvas.getBoundingClientRect();
  if (!box.width) return;
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(box.width * scale);
  canvas.height = Math.round(box.height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const middles = (items) =>
    items.map((item) => {
      const place = item.getBoundingClientRect();
      return place.top + place.height / 2 - box.top;
    });
  const [left, right] = [middles(sources), middles(targets)];
  const lines = [];
  for (const from of left.keys()) {
    for (const to of right.keys()) {
      const share = weight(from, to);
      if (share >= FAINTEST) lines.push([share, from, to]);
    }
  }
  lines.sort((a, b) => b[0] - a[0]).splice(MOST_LINES);
  const [red, green, blue] = accent();
  for (const [share, from, to] of lines.reverse()) {
    const faded = only !== null && from !== only;
    context.strokeStyle = `rgba(${red}, ${green}, ${blue}, ${faded ? 0.08 * share : 0.12 + 0.88 * share ** 0.8})`;
    context.lineWidth = faded ? 1 : 0.75 + 3 * share;
    context.beginPath();
    context.moveTo(0, left[from]);
    context.bezierCurveTo(box.width / 2, left[from], box.width / 2, right[to], box.width, right[to]);
    context.stroke();
  }
}
