/* Read-outs of report.html: the values of all methods at one place of a figure, by pointer or by
   arrow keys. The page is complete without it. It reads the points that plot_svg.c drew (data-x,
   data-y) and writes text nodes only, so that no name can become markup. */
document.querySelectorAll('svg.plot').forEach(function (plot) {
  const figure = plot.closest('figure');
  const box = document.createElement('div');
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
  figure.append(box);
  cross.setAttribute('class', 'cross');
  cross.setAttribute('y2', '100%');
  cross.style.display = 'none';
  plot.append(cross);
  plot.tabIndex = 0;

  function add(parent, kind, text) {
    const element = document.createElement(kind);
    element.textContent = text;
    parent.append(element);
    return element;
  }
  function show(i) {
    now = Math.max(0, Math.min(places.length - 1, i));
    const points = stops.get(places[now]).filter(function (p) {
      return p.getClientRects().length > 0 && getComputedStyle(p.parentNode).display !== 'none';
    });
    points.sort(function (a, b) { return a.getAttribute('y') - b.getAttribute('y'); });
    box.replaceChildren();
    add(box, 'b', 'at ' + stops.get(places[now])[0].dataset.x);
    points.forEach(function (p) {
      const row = add(box, 'div', '');
      row.style.color = getComputedStyle(p.parentNode).color;
      add(row, 'span', p.parentNode.dataset.name);
      add(row, 'span', p.dataset.y);
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
  plot.addEventListener('pointerleave', hide);
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
});
