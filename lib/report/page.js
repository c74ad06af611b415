/* The script of report.html adds the values of all methods at one place of a figure (by mouse,
   touch or arrow keys), figures saved as SVG or PNG, and tables that sort and copy. The page is
   complete without it. It reads the points that plot_svg.c lists (data-points) and writes text nodes
   only, so that no name can become markup. */
function add(parent, kind, text) {
  const element = document.createElement(kind);
  element.textContent = text;
  parent.append(element);
  return element;
}

/* ---- read-outs */

/* A box beside a place of a plot, in percent of its width. The mark in the plot shows which. */
function makeBox(plot, mark) {
  const figure = plot.closest('figure'), box = add(figure, 'div', '');
  const title = plot.querySelector('title');
  plot.setAttribute('aria-label', title.textContent);
  plot.setAttribute('aria-describedby', plot.querySelector('desc').id);
  plot.removeAttribute('aria-labelledby');
  title.remove();
  box.className = 'readout';
  box.setAttribute('role', 'status');
  box.hidden = true;
  mark.style.display = 'none';
  plot.append(mark);
  plot.tabIndex = 0;
  return {
    fill: function (heading, rows) {
      box.replaceChildren();
      add(box, 'b', heading);
      rows.forEach(function (cells) {
        const row = add(box, 'div', '');
        row.style.color = cells[2] || '';
        add(row, 'span', cells[0]);
        add(row, 'span', cells[1]);
      });
    },
    show: function (place) {
      mark.style.display = '';
      box.hidden = false;
      const area = plot.getBoundingClientRect(), frame = figure.getBoundingClientRect();
      const x = area.left - frame.left + area.width * place / 100;
      const left = place < 50 ? x + 14 : x - 14 - box.offsetWidth;
      box.style.left = Math.max(0, Math.min(left, frame.width - box.offsetWidth)) + 'px';
      box.style.top = area.top - frame.top + 8 + 'px';
    },
    hide: function () {
      mark.style.display = 'none';
      box.hidden = true;
    }
  };
}

/* Mouse and finger give a place (in percent across, in pixels down), keys a step. */
function listen(plot, box, toPlace, byStep) {
  function follow(event) {
    const area = plot.getBoundingClientRect();
    toPlace(100 * (event.clientX - area.left) / area.width, event.clientY - area.top);
  }
  plot.addEventListener('pointermove', follow);
  plot.addEventListener('pointerdown', follow);
  /* A finger leaves when it is lifted: its values stay until another place is touched. */
  plot.addEventListener('pointerleave', function (event) {
    if (event.pointerType === 'mouse') box.hide();
  });
  document.addEventListener('pointerdown', function (event) {
    if (!plot.contains(event.target)) box.hide();
  });
  plot.addEventListener('focus', function () {
    if (plot.matches(':focus-visible')) byStep(0, 0);
  });
  plot.addEventListener('blur', box.hide);
  plot.addEventListener('keydown', function (event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
      Home: [-1e6, 0], End: [1e6, 0] }[event.key];
    if (event.key === 'Escape') box.hide();
    if (!step || (step[1] && !plot.dataset.rows)) return;
    event.preventDefault();
    byStep(step[0], step[1]);
  });
}

function within(value, count) { return Math.max(0, Math.min(count - 1, value)); }

/* The values of all curves at one place. */
function readCurves(plot) {
  const cross = document.createElementNS(plot.namespaceURI, 'line'), box = makeBox(plot, cross);
  const stops = new Map();
  plot.querySelectorAll('.series').forEach(function (series) {
    series.dataset.points.split(';').filter(Boolean).forEach(function (text) {
      const point = text.split(','), at = parseFloat(point[0]);
      if (!stops.has(at)) stops.set(at, []);
      stops.get(at).push({ series: series, down: parseFloat(point[1]), x: point[2],
        value: (point[3] + ' ' + point[4]).trim() });
    });
  });
  const places = Array.from(stops.keys()).sort(function (a, b) { return a - b; });
  let now = places.length - 1;
  cross.setAttribute('class', 'cross');
  cross.setAttribute('y2', '100%');

  function show(i) {
    if (places.length === 0) return;
    now = within(i, places.length);
    const points = stops.get(places[now]).filter(function (p) {
      return getComputedStyle(p.series).display !== 'none';
    });
    points.sort(function (a, b) { return a.down - b.down; });
    box.fill('at ' + stops.get(places[now])[0].x, points.map(function (p) {
      return [p.series.dataset.name, p.value, getComputedStyle(p.series).color];
    }));
    cross.setAttribute('x1', places[now] + '%');
    cross.setAttribute('x2', places[now] + '%');
    box.show(places[now]);
  }
  listen(plot, box, function (at) {
    let nearest = 0;
    places.forEach(function (p, i) {
      if (Math.abs(p - at) < Math.abs(places[nearest] - at)) nearest = i;
    });
    show(nearest);
  }, function (across) { show(now + across); });
}

/* The value of one cell of a heat map. */
function readCells(plot) {
  const cell = document.createElementNS(plot.namespaceURI, 'rect'), box = makeBox(plot, cell);
  const rows = plot.dataset.rows.split(';'), columns = plot.dataset.columns.split(',');
  const heads = Number(plot.dataset.heads), height = Number(plot.dataset.row);
  const gap = Number(plot.dataset.gap), group = heads * height + gap;
  let row = 0, column = 0;
  cell.setAttribute('class', 'cell');

  function show(newColumn, newRow) {
    column = within(newColumn, columns.length);
    row = within(newRow, rows.length);
    const layer = Math.floor(row / heads), head = row % heads;
    box.fill('layer ' + (layer + 1) + ', head ' + (head + 1), [[
      columns[column] + (columns[column] === '1' ? ' token back' : ' tokens back'),
      (rows[row].split(',')[column] / 10).toFixed(1) + '%']]);
    Object.entries({ x: 100 * column / columns.length + '%', y: layer * group + head * height,
      width: 100 / columns.length + '%', height: height }).forEach(function (a) {
      cell.setAttribute(a[0], a[1]);
    });
    box.show(100 * (column + .5) / columns.length);
  }
  listen(plot, box, function (across, down) {
    const layer = Math.floor(down / group), head = Math.floor((down - layer * group) / height);
    show(Math.floor(across / 100 * columns.length), layer * heads + within(head, heads));
  }, function (across, down) { show(column + across, row + down); });
}

/* ---- saving */

const painted = ['fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-opacity',
  'stroke-dasharray', 'stroke-linejoin', 'font-family', 'font-size', 'font-weight'];

/* A value of the style as every program understands it: mixed colours are rgb, and sizes
   have no unit. */
function plain(value) {
  return value.replace(/([0-9])px/g, '$1').replace(/color\(srgb ([0-9.]+) ([0-9.]+) ([0-9.]+)\)/g, function (all, r, g, b) {
    return 'rgb(' + [r, g, b].map(function (c) { return Math.round(255 * c); }).join(', ') + ')';
  });
}

function make(plot, kind, attributes) {
  const element = document.createElementNS(plot.namespaceURI, kind);
  Object.entries(attributes).forEach(function (a) { element.setAttribute(a[0], a[1]); });
  return element;
}

/* A copy of the plot for programs that know less than a browser: what the style gives each element
   is in its attributes, percentages are numbers, and what is stretched or placed by an <svg> of its
   own is so by its numbers and by a <g>. */
function flatten(plot, width) {
  const copy = plot.cloneNode(true), copies = Array.from(copy.querySelectorAll('*'));
  Array.from(plot.querySelectorAll('*')).forEach(function (element, i) {
    const now = getComputedStyle(element), made = copies[i];
    if (now.display === 'none' || /^(title|desc)$/.test(made.tagName)) {
      made.remove();
      return;
    }
    ['style', 'class', 'vector-effect'].forEach(function (name) { made.removeAttribute(name); });
    painted.forEach(function (name) {
      made.setAttribute(name, plain(now.getPropertyValue(name)));
    });
    ['x', 'x1', 'x2', 'cx', 'width'].forEach(function (name) {
      const value = made.getAttribute(name) || '';
      if (value.endsWith('%'))
        made.setAttribute(name, (parseFloat(value) * width / 100).toFixed(1));
    });
  });
  copy.querySelectorAll('svg').forEach(function (inner) {
    const place = [inner.getAttribute('x') || 0, inner.getAttribute('y') || 0].join(',');
    if (inner.hasAttribute('viewBox')) {
      const scale = width / inner.viewBox.baseVal.width;
      inner.querySelectorAll('path').forEach(function (path) {
        path.setAttribute('d', path.getAttribute('d').replace(/([MLh])(-?[0-9.]+)/g,
          function (all, letter, x) { return letter + (x * scale).toFixed(1); }));
      });
    }
    const group = make(plot, 'g', { transform: 'translate(' + place + ')' });
    group.append(...inner.childNodes);
    inner.replaceWith(group);
  });
  return copy;
}

/* The figure as a document of its own: as wide as on the page, with its title and its colours. */
function standAlone(figure) {
  const plot = Array.from(figure.querySelectorAll('.plot')).find(function (p) {
    return getComputedStyle(p).display !== 'none';
  });
  const page = getComputedStyle(document.body), style = getComputedStyle(plot);
  const area = plot.getBoundingClientRect(), top = 74, left = parseFloat(style.marginLeft);
  const width = area.width + left + parseFloat(style.marginRight) + 16;
  const height = area.height + top + parseFloat(style.marginBottom) + 8;
  const whole = make(plot, 'svg', { width: width, height: height });
  const title = make(plot, 'text', { x: 8, y: 22, fill: page.color,
    'font-family': page.fontFamily, 'font-size': 14, 'font-weight': 650 });
  const body = make(plot, 'g', { transform: 'translate(' + (left + 8) + ',' + top + ')' });
  title.textContent = figure.querySelector('figcaption b').textContent;
  body.append(...flatten(plot, area.width).childNodes);
  whole.append(make(plot, 'rect', { width: width, height: height, fill: page.backgroundColor }),
    title, body);
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

/* ---- tables */

/* The text of a cell or of the button of a heading: small print comes after a blank. */
function cellText(cell) {
  return Array.from((cell.querySelector('button') || cell).childNodes).map(function (node) { return node.textContent.trim(); })
    .filter(Boolean).join(' ');
}

/* The number that a cell begins with, in full: 83.0 MiB is 83 * 2^20. null: it is no number. A cell
   whose text does not order as its number does has the number in data-sort. */
function cellNumber(cell) {
  const units = { K: 1e3, M: 1e6, G: 1e9, T: 1e12,
    Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };
  const text = cell.dataset.sort || cellText(cell);
  const parts = /^([-+]?[0-9.]+(?:e[-+]?[0-9]+)?) ?([KMGT]i?)?/.exec(text);
  if (text.startsWith('∞')) return Number.MAX_VALUE;
  return parts ? parts[1] * (units[parts[2]] || 1) : null;
}

/* In the given order if `way` is empty. A column with a word in it is ordered as words are; cells
   without a value are last either way. */
function sortRows(rows, column, way) {
  const keys = new Map(rows.map(function (row) {
    const cell = row.cells[column], text = cellText(cell);
    return [row, { text: text, missing: text === '' || text === '–', number: cellNumber(cell) }];
  }));
  const numbers = Array.from(keys.values()).every(function (key) {
    return key.missing || key.number !== null;
  });
  if (!way) return rows;
  return rows.slice().sort(function (a, b) {
    const p = keys.get(a), q = keys.get(b);
    if (p.missing || q.missing) return p.missing - q.missing;
    const order = numbers ? p.number - q.number :
      p.text.localeCompare(q.text, 'en', { numeric: true });
    return way === 'ascending' ? order : -order;
  });
}

/* A heading sorts by its column: ascending, descending, as given. */
function sortable(table) {
  const body = table.tBodies[0], rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach(function (head, column) {
    const button = document.createElement('button');
    button.append(...head.childNodes);
    button.title = 'Sort';
    head.append(button);
    button.addEventListener('click', function () {
      const was = head.getAttribute('aria-sort');
      const way = !was ? 'ascending' : was === 'ascending' ? 'descending' : '';
      heads.forEach(function (other) { other.removeAttribute('aria-sort'); });
      if (way) head.setAttribute('aria-sort', way);
      table.classList.toggle('sorted', way !== '');
      body.append(...sortRows(rows, column, way));
    });
  });
}

/* A page that was opened as a file may not have the clipboard: then the older way, and if that is
   refused too, the text stays there, selected. */
async function toClipboard(text, place) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch (refused) {
    const area = add(place, 'textarea', text);
    area.readOnly = true;
    area.select();
    const done = document.execCommand('copy');
    if (done) area.remove();
    return done;
  }
}

function copyable(table) {
  const tools = document.createElement('div'), button = add(tools, 'button', 'Copy');
  tools.className = table.caption ? 'tools beside' : 'tools';
  button.title = 'Copy this table as tab-separated text';
  button.setAttribute('aria-live', 'polite');
  table.closest('.scroll').before(tools);
  button.addEventListener('click', async function () {
    const text = Array.from(table.rows).map(function (row) {
      return Array.from(row.cells).map(cellText).join('\t') + '\n';
    }).join('');
    tools.querySelectorAll('textarea').forEach(function (area) { area.remove(); });
    const done = await toClipboard(text, tools);
    button.textContent = done ? 'Copied' : 'Selected: press Ctrl+C';
    setTimeout(function () { button.textContent = 'Copy'; }, done ? 1500 : 6000);
  });
}

/* ---- contents, of a page with many sections */

function listSections() {
  const heads = document.querySelectorAll('main > h2');
  if (heads.length < 4) return;
  const nav = add(document.querySelector('header'), 'nav', '');
  nav.setAttribute('aria-label', 'On this page');
  heads.forEach(function (head, i) {
    head.id = 'section-' + i;
    add(nav, 'a', head.textContent.split(':')[0]).href = '#' + head.id;
  });
}

/* ---- paper: what is folded is printed too */

const unfolded = [];
window.addEventListener('beforeprint', function () {
  document.querySelectorAll('details:not([open])').forEach(function (details) {
    details.open = true;
    unfolded.push(details);
  });
});
window.addEventListener('afterprint', function () {
  unfolded.splice(0).forEach(function (details) { details.open = false; });
});

listSections();
document.querySelectorAll('svg.plot:not(.dots)').forEach(function (plot) {
  (plot.dataset.rows ? readCells : readCurves)(plot);
});
document.querySelectorAll('table.data').forEach(function (table) {
  sortable(table);
  copyable(table);
});
document.querySelectorAll('figure .tools').forEach(function (tools) {
  ['svg', 'png'].forEach(function (kind) {
    const button = add(tools, 'button', kind.toUpperCase());
    button.title = 'Save this figure as ' + kind.toUpperCase();
    button.addEventListener('click', function () { save(tools.closest('figure'), kind); });
  });
});
