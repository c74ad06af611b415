/* The script of report.html adds the values of all methods at one place of a figure (by mouse,
   touch or arrow keys), and figures saved as SVG or PNG. The page is complete without it. It reads
   the points that plot_svg.c drew (data-x, data-y, data-error) and writes text nodes only, so that
   no name can become markup. */
function add(parent, kind, text) {
  const element = document.createElement(kind);
  element.textContent = text;
  parent.append(element);
  return element;
}

/* ---- read-outs */

function readOut(plot) {
  const figure = plot.closest('figure');
  const box = add(figure, 'div', '');
  const cross = document.createElementNS(plot.namespaceURI, 'line');
  const stops = new Map();
  plot.querySelectorAll('.point').forEach(function (point) {
    const at = parseFloat(point.getAttribute('x'));
    if (!stops.has(at)) stops.set(at, []);
    stops.get(at).push(point);
    point.querySelector('title').remove();
  });
  const places = Array.from(stops.keys()).sort(function (a, b) { return a - b; });
  let now = places.length - 1;
  const title = plot.querySelector('title');
  plot.setAttribute('aria-label', title.textContent);
  plot.setAttribute('aria-describedby', plot.querySelector('desc').id);
  plot.removeAttribute('aria-labelledby');
  title.remove();
  box.className = 'readout';
  box.setAttribute('role', 'status');
  box.hidden = true;
  cross.setAttribute('class', 'cross');
  cross.setAttribute('y2', '100%');
  cross.style.display = 'none';
  plot.append(cross);
  plot.tabIndex = 0;

  function show(i) {
    if (places.length === 0) return;
    now = Math.max(0, Math.min(places.length - 1, i));
    const points = stops.get(places[now]).filter(function (p) {
      return getComputedStyle(p.parentNode).display !== 'none';
    });
    points.sort(function (a, b) { return a.getAttribute('y') - b.getAttribute('y'); });
    box.replaceChildren();
    add(box, 'b', 'at ' + stops.get(places[now])[0].dataset.x);
    points.forEach(function (p) {
      const row = add(box, 'div', '');
      row.style.color = getComputedStyle(p.parentNode).color;
      add(row, 'span', p.parentNode.dataset.name);
      add(row, 'span', (p.dataset.y + ' ' + p.dataset.error).trim());
    });
    cross.setAttribute('x1', places[now] + '%');
    cross.setAttribute('x2', places[now] + '%');
    cross.style.display = '';
    box.hidden = false;
    const area = plot.getBoundingClientRect(), frame = figure.getBoundingClientRect();
    const x = area.left - frame.left + area.width * places[now] / 100;
    const left = places[now] < 50 ? x + 14 : x - 14 - box.offsetWidth;
    box.style.left = Math.max(0, Math.min(left, frame.width - box.offsetWidth)) + 'px';
    box.style.top = area.top - frame.top + 8 + 'px';
  }
  function hide() {
    cross.style.display = 'none';
    box.hidden = true;
  }
  function follow(event) {
    const area = plot.getBoundingClientRect();
    const at = 100 * (event.clientX - area.left) / area.width;
    let nearest = 0;
    places.forEach(function (p, i) {
      if (Math.abs(p - at) < Math.abs(places[nearest] - at)) nearest = i;
    });
    show(nearest);
  }
  plot.addEventListener('pointermove', follow);
  plot.addEventListener('pointerdown', follow);
  /* A finger leaves when it is lifted: its values stay until another place is touched. */
  plot.addEventListener('pointerleave', function (event) {
    if (event.pointerType === 'mouse') hide();
  });
  document.addEventListener('pointerdown', function (event) {
    if (!plot.contains(event.target)) hide();
  });
  plot.addEventListener('focus', function () { if (plot.matches(':focus-visible')) show(now); });
  plot.addEventListener('blur', hide);
  plot.addEventListener('keydown', function (event) {
    const last = places.length;
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last }[event.key];
    if (event.key === 'Escape') hide();
    if (!step) return;
    event.preventDefault();
    show(now + step);
  });
}

/* ---- saving */

const painted = ['color', 'display', 'fill', 'fill-opacity', 'stroke', 'stroke-width',
  'stroke-opacity', 'stroke-dasharray', 'stroke-linecap', 'font-family', 'font-size', 'font-weight'];

/* The figure as a document of its own: as wide as on the page, with its title, and with the colours
   that the style gives each element now. */
function standAlone(figure) {
  const plot = Array.from(figure.querySelectorAll('.plot')).find(function (p) {
    return getComputedStyle(p).display !== 'none';
  });
  const page = getComputedStyle(document.body), style = getComputedStyle(plot);
  const area = plot.getBoundingClientRect(), top = 74, left = parseFloat(style.marginLeft);
  const whole = document.createElementNS(plot.namespaceURI, 'svg');
  const copy = plot.cloneNode(true), copies = copy.querySelectorAll('*');
  plot.querySelectorAll('*').forEach(function (element, i) {
    const now = getComputedStyle(element);
    painted.forEach(function (name) {
      copies[i].style.setProperty(name, now.getPropertyValue(name));
    });
  });
  copy.querySelector('.cross').remove();
  ['style', 'class', 'tabindex'].forEach(function (name) { copy.removeAttribute(name); });
  function put(element, attributes) {
    Object.entries(attributes).forEach(function (a) { element.setAttribute(a[0], a[1]); });
    whole.append(element);
  }
  put(document.createElementNS(plot.namespaceURI, 'rect'),
    { width: '100%', height: '100%', fill: page.backgroundColor });
  const title = document.createElementNS(plot.namespaceURI, 'text');
  title.textContent = figure.querySelector('figcaption b').textContent;
  put(title, { x: 8, y: 22, fill: page.color, 'font-family': page.fontFamily, 'font-size': 14,
    'font-weight': 650 });
  put(copy, { x: left + 8, y: top, width: area.width, height: area.height, overflow: 'visible' });
  whole.setAttribute('width', area.width + left + parseFloat(style.marginRight) + 16);
  whole.setAttribute('height', area.height + top + parseFloat(style.marginBottom) + 8);
  return whole;
}

function download(figure, kind, blob) {
  const link = document.createElement('a');
  const title = figure.querySelector('figcaption b').textContent;
  link.download = title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/-$/, '') + '.' + kind;
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
}

function save(figure, kind) {
  const whole = standAlone(figure), text = new XMLSerializer().serializeToString(whole);
  if (kind === 'svg') {
    download(figure, kind, new Blob([text], { type: 'image/svg+xml' }));
    return;
  }
  const image = new Image(), canvas = document.createElement('canvas'), scale = 2;
  image.onload = function () {
    canvas.width = scale * whole.getAttribute('width');
    canvas.height = scale * whole.getAttribute('height');
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(function (blob) { download(figure, kind, blob); });
  };
  image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(text);
}

document.querySelectorAll('svg.plot').forEach(readOut);
document.querySelectorAll('figure .tools').forEach(function (tools) {
  ['svg', 'png'].forEach(function (kind) {
    const button = add(tools, 'button', kind.toUpperCase());
    button.title = 'Save this figure as ' + kind.toUpperCase();
    button.addEventListener('click', function () { save(tools.closest('figure'), kind); });
  });
});
