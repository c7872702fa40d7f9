// What the pages' own pictures do by pointer and keys, in the browser: nothing here asks the server, and every choice ends in the address.
(() => {
const root = document.getElementById("root")
const app = () => root.querySelector("[data-testid=stApp]")
const main = () => root.querySelector("[data-testid=stMain]")

// Goes to an address of the pages as one step of the history: Streamlit reads it as it reads a step back. `change` maps parameters to values, null takes one out.
const go = (change, path = location.pathname) => {
  const to = new URL(path, location.href), kept = new URLSearchParams(location.search)
  if (path === location.pathname) for (const [name, value] of kept) to.searchParams.set(name, value)
  for (const [name, value] of Object.entries(change)) value === null ? to.searchParams.delete(name) : to.searchParams.set(name, value)
  history.pushState({}, "", to.pathname + to.search)
  dispatchEvent(new PopStateEvent("popstate"))
}
// Streamlit adds a step to the history for every parameter that changes: one choice of a person is one step.
let acted = true
for (const name of ["pointerdown", "keydown", "click"]) addEventListener(name, () => { acted = true }, true)
const push = history.pushState.bind(history)
history.pushState = (...step) => {
  acted ? push(...step) : history.replaceState(...step)
  acted = false
}
const stamp = time => new Date(time).toISOString().replace(/\.\d+Z$/, "Z")

// --- The server keeps a drawn page waiting: grey places where nothing stands, a line where older numbers do. ---
const QUIET_MS = 700, LONG_MS = 5000
let since = 0
const late = document.createElement("div")
late.id = "ov-late"
late.setAttribute("role", "status")
const waiting = () => {
  const running = app()?.dataset.testScriptState === "running"
  if (!running) { since = 0; late.remove(); return }
  since ||= performance.now()
  const waited = performance.now() - since
  if (waited < QUIET_MS || document.querySelector("#ov-first:not([hidden])")) return
  const stands = main()?.querySelector(".ov-box"), long = waited >= LONG_MS
  const words = stands ? "◔ Waiting for the server: numbers below may be those of the question before." : "Waiting for the server"
  const more = long ? ` It has not answered for ${Math.floor(waited / 1000)} s: it may be busy with a long window, or it may hang (see the log of overrun serve). This page goes on by itself.` : ""
  const look = stands ? "ov-line" : "ov-empty"
  if (late.className !== look) late.className = look
  if (late.textContent !== words + more) late.textContent = words + more
  const bar = root.querySelector(".st-key-filters")
  const top = (bar?.getBoundingClientRect().bottom ?? 120) + 12
  late.style.top = stands ? "" : `${top}px`
  if (!late.isConnected) document.body.append(late)
}
setInterval(waiting, 250)

// --- The window: two clocks, in UTC or the reader's own time. ---
const asLocal = (time, utc) => {
  const at = new Date(time)
  return new Date(+at - (utc ? 0 : at.getTimezoneOffset() * 60000)).toISOString().slice(0, 19)
}
const readLocal = (text, utc) => +new Date(utc ? `${text}Z` : text)
const clocks = (time, zone) => new Date(time).toLocaleString("sv-SE", {timeZone: zone})
const begin = picker => {
  picker.dataset.ready = "yes"
  const to = picker.dataset.to ?? stamp(Date.now()), from = picker.dataset.from ?? stamp(Date.now() - 1000 * picker.dataset.length)
  const utc = () => !picker.querySelector("[name=ov-zone][value=own]")?.checked
  const [start, end] = ["from", "to"].map(name => picker.querySelector(`[data-edge=${name}]`))
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone
  const same = !new Date(from || Date.now()).getTimezoneOffset()
  if (same) picker.querySelector(".ov-zones").hidden = true
  const fill = () => {
    start.value = asLocal(from, utc())
    end.value = asLocal(to, utc())
    says()
  }
  const says = () => {
    const [a, b] = [start, end].map(field => readLocal(field.value, utc()))
    const wrong = isNaN(a) || isNaN(b) ? "Give both a start and an end." : a >= b ? "The end must be later than the start." : ""
    const other = utc() ? own : "UTC"
    picker.querySelector(".ov-other").textContent = wrong || (same ? "" : `${clocks(a, other)} to ${clocks(b, other)} ${utc() ? `your time (${own})` : "UTC"}`)
    picker.querySelector(".ov-show").disabled = Boolean(wrong)
    return wrong ? null : [a, b]
  }
  picker.addEventListener("input", event => event.target.name === "ov-zone" ? fill() : says())
  picker.addEventListener("change", event => event.target.name === "ov-zone" ? fill() : says())
  picker.querySelector(".ov-show").addEventListener("click", () => {
    const typed = picker.querySelector(".ov-typed").value.trim()
    const [a, b] = typed ? [...typed.split(".."), ""].slice(0, 2).map(part => part.trim()) : says().map(stamp)
    picker.open = false
    go({since: null, from: a || null, to: b && b !== "now" ? b : null})
  })
  picker.addEventListener("keydown", event => {
    if (event.key === "Escape") { picker.open = false; picker.querySelector("summary").focus() }
    if (event.key === "Enter" && event.target.tagName === "INPUT" && event.target.type !== "radio") { event.preventDefault(); picker.querySelector(".ov-show").click() }
    event.stopPropagation()
  })
  fill()
}
addEventListener("pointerdown", event => {
  for (const picker of document.querySelectorAll("details.ov-when[open]")) if (!picker.contains(event.target)) picker.open = false
})

// --- Drag over a picture of time to make the stretch the window; a click opens the requests of that step. ---
let drag = null
addEventListener("pointerdown", event => {
  const course = event.button === 0 && event.pointerType !== "touch" && event.target.closest?.(".ov-drag[data-from]")
  if (!course) return
  const box = course.getBoundingClientRect()
  drag = {course, box, x: event.clientX, mark: null}
})
const share = x => Math.min(1, Math.max(0, (x - drag.box.left) / drag.box.width))
addEventListener("pointermove", event => {
  if (!drag || (!drag.mark && Math.abs(event.clientX - drag.x) < 6)) return
  if (!drag.mark) {
    drag.mark = document.createElement("em")
    drag.mark.className = "ov-brush"
    drag.course.append(drag.mark)
    getSelection()?.removeAllRanges()
  }
  const [low, high] = [share(drag.x), share(event.clientX)].sort((a, b) => a - b)
  Object.assign(drag.mark.style, {left: `${100 * low}%`, width: `${100 * (high - low)}%`})
  event.preventDefault()
})
addEventListener("pointerup", event => {
  if (!drag) return
  const {course, mark} = drag, [low, high] = [share(drag.x), share(event.clientX)].sort((a, b) => a - b)
  drag = null
  if (mark) {
    mark.remove()
    const [from, to] = [+new Date(course.dataset.from), +new Date(course.dataset.to)]
    const start = Math.floor((from + low * (to - from)) / 1000), end = Math.ceil((from + high * (to - from)) / 1000)
    go({since: null, from: stamp(1000 * start), to: stamp(1000 * Math.max(end, start + 1))})
  } else if (event.target.closest?.("[data-box]")) openStep(event.target.closest("[data-box]").dataset.box, course.dataset.metric)
})
const openStep = (box, metric) => {
  const here = new URLSearchParams(location.search), kept = ["since", "from", "to", "service", "model", "route", "tenant", "slo"]
  go({...Object.fromEntries(kept.map(name => [name, here.get(name)])), metric: metric ?? here.get("metric"), box}, "/traces")
}
// The same on a chart of Plotly, whose points carry their step: it keeps what the pointer is over.
let pressed = null
addEventListener("pointerdown", event => {
  const plot = event.target.closest?.(".js-plotly-plot")
  const step = plot?._hoverdata?.map(point => point.customdata).find(text => typeof text === "string" && /^\d{8}T\d{6}-\d{8}T\d{6}_/.test(text))
  pressed = step && event.button === 0 ? {step, x: event.clientX, y: event.clientY} : null
}, true)
addEventListener("pointerup", event => {
  if (pressed && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) < 4) {
    // After Streamlit has heard from the chart that nothing was selected: it would ask for the former page.
    const {step} = pressed
    setTimeout(() => openStep(step), 300)
  }
  pressed = null
}, true)
addEventListener("click", event => {
  const zoom = event.target.closest?.("button.ov-zoom")
  if (zoom) go({since: null, from: zoom.dataset.from, to: zoom.dataset.to})
})
addEventListener("keydown", event => { if (drag && event.key === "Escape") { drag.mark?.remove(); drag = null } })

// --- One request: zoom and move by keys, find, fold. ---
const PAN = 0.2, ZOOM = 1.6, MOST = 400
const views = new WeakMap()
const tick = value => value < 1000 ? `${+value.toPrecision(3)} ms` : value < 120000 ? `${+(value / 1000).toPrecision(3)} s` : `${+(value / 60000).toPrecision(3)} min`
const look = (trace, at, zoom) => {
  zoom = Math.min(MOST, Math.max(1, zoom))
  at = Math.min(100 - 100 / zoom, Math.max(0, at))
  views.set(trace, {at, zoom})
  trace.style.setProperty("--at", at)
  trace.style.setProperty("--zoom", zoom)
  const total = +trace.dataset.total, axis = trace.querySelector(".ov-axis .ov-lane"), width = total / zoom
  for (const old of axis.querySelectorAll("i")) old.remove()
  const power = 10 ** Math.floor(Math.log10(width)), step = [0.1, 0.2, 0.5, 1].map(part => part * power * 2).find(one => width / one <= 5) ?? 2 * power
  for (let value = Math.ceil(at * total / 100 / step) * step; value <= (at / 100 + 0.97 / zoom) * total; value += step) {
    const mark = document.createElement("i")
    mark.style.setProperty("--l", 100 * value / total)
    mark.textContent = value ? tick(value) : "0"
    axis.append(mark)
  }
  trace.querySelector(".ov-shown").textContent = zoom > 1 ? `${tick(at * total / 100)} to ${tick((at / 100 + 1 / zoom) * total)}` : ""
}
const move = (trace, how) => {
  const {at, zoom} = views.get(trace) ?? {at: 0, zoom: 1}, seen = 100 / zoom
  if (how === "in" || how === "out") {
    const to = how === "in" ? zoom * ZOOM : zoom / ZOOM
    look(trace, at + (seen - 100 / to) / 2, to)
  } else if (how === "all") look(trace, 0, 1)
  else look(trace, at + (how === "left" ? -PAN : PAN) * seen, zoom)
}
const lines = trace => [...trace.querySelectorAll(".ov-line")]
const fold = (button, folded) => {
  button.setAttribute("aria-expanded", String(!folded))
  button.textContent = folded ? "▸" : "▾"
}
const refold = trace => {
  let below = Infinity
  for (const line of lines(trace)) {
    const depth = +line.dataset.depth, button = line.querySelector(".ov-fold")
    line.hidden = depth > below
    if (depth <= below) below = button?.getAttribute("aria-expanded") === "false" ? depth : Infinity
  }
}
const foldAll = (trace, off) => {
  for (const button of trace.querySelectorAll(".ov-fold")) fold(button, off && !button.closest(".ov-line").querySelector(":scope > .ov-span b"))
  if (off) for (const button of trace.querySelectorAll(".ov-fold")) if (!onPathBelow(trace, button)) fold(button, true)
  refold(trace)
}
const onPathBelow = (trace, button) => {
  const all = lines(trace), from = all.indexOf(button.closest(".ov-line")), depth = +all[from].dataset.depth
  for (const line of all.slice(from + 1)) {
    if (+line.dataset.depth <= depth) return false
    if (line.querySelector(".ov-name b")) return true
  }
  return false
}
const find = (trace, words, next) => {
  words = words.trim().toLowerCase()
  const hits = lines(trace).filter(line => {
    const hit = !words || line.textContent.toLowerCase().includes(words)
    line.classList.toggle("ov-dim", !hit)
    return hit
  })
  trace.querySelector(".ov-found").textContent = words ? `${hits.length} of ${lines(trace).length} rows` : ""
  if (!next || !words || !hits.length) return
  const place = (+trace.dataset.hit + 1 || 0) % hits.length
  trace.dataset.hit = place
  hits[place].hidden = false
  const row = hits[place].querySelector("summary") ?? hits[place]
  row.scrollIntoView({block: "nearest"})
  for (const line of lines(trace)) line.classList.toggle("ov-hit", line === hits[place])
}
const KEYS = {"+": "in", "=": "in", w: "in", "-": "out", s: "out", ArrowLeft: "left", a: "left", ArrowRight: "right", d: "right", "0": "all"}
const step = label => [...main().querySelectorAll("button")].find(button => button.textContent.includes(label) && !button.disabled)?.click()
addEventListener("keydown", event => {
  const trace = event.target.closest?.(".ov-trace")
  if (!trace || event.ctrlKey || event.metaKey || event.altKey) return
  if (event.target.matches(".ov-find")) {
    if (event.key === "Enter") find(trace, event.target.value, true)
    if (event.key === "Escape") { event.target.value = ""; find(trace, "") }
    event.stopPropagation()
    return
  }
  if (event.target.matches("button") && (event.key === "Enter" || event.key === " ")) return
  if (KEYS[event.key]) move(trace, KEYS[event.key])
  else if (event.key === "/") trace.querySelector(".ov-find").focus()
  else if (event.key === "f") trace.querySelector("[data-do=fold]").click()
  else if (event.key === "n") step("Next in the list")
  else if (event.key === "p") step("Previous in the list")
  else return
  event.preventDefault()
  event.stopPropagation()
}, true)
addEventListener("input", event => {
  const trace = event.target.closest?.(".ov-trace")
  if (trace && event.target.matches(".ov-find")) { delete trace.dataset.hit; find(trace, event.target.value) }
})
addEventListener("click", event => {
  const button = event.target.closest?.(".ov-trace button"), trace = button?.closest(".ov-trace")
  if (!button) return
  if (button.matches(".ov-fold")) {
    fold(button, button.getAttribute("aria-expanded") === "true")
    refold(trace)
  } else if (button.dataset.do === "fold") {
    const folded = button.getAttribute("aria-pressed") !== "true"
    button.setAttribute("aria-pressed", String(folded))
    foldAll(trace, folded)
  } else move(trace, button.dataset.do)
})

// --- The list of requests: up and down by keys, sorted by a column. ---
addEventListener("keydown", event => {
  const link = event.target.closest?.(".ov-list a.ov-go"), by = {ArrowDown: 1, ArrowUp: -1}[event.key]
  if (!link || !by) return
  const row = link.closest("tr"), to = by > 0 ? row.nextElementSibling : row.previousElementSibling
  const next = to?.querySelector("a.ov-go")
  if (next) { link.tabIndex = -1; next.tabIndex = 0; next.focus() }
  event.preventDefault()
  event.stopPropagation()
}, true)
addEventListener("click", event => {
  const button = event.target.closest?.(".ov-list th button")
  if (button) {
    const head = button.closest("th"), place = head.cellIndex, down = head.getAttribute("aria-sort") !== "descending"
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort")
    head.setAttribute("aria-sort", down ? "descending" : "ascending")
    const body = head.closest("table").tBodies[0]
    const value = row => row.cells[place].dataset.v ?? row.cells[place].textContent
    const compare = (a, b) => isNaN(value(a)) || isNaN(value(b)) ? value(a).localeCompare(value(b)) : value(a) - value(b)
    body.append(...[...body.rows].sort((a, b) => down ? -compare(a, b) : compare(a, b)))
    return
  }
  // A row is its link, wherever it is clicked.
  const row = event.target.closest?.(".ov-list tbody tr")
  if (row && !event.target.closest("a") && !getSelection().toString()) row.querySelector("a.ov-go")?.click()
})

let soon = 0
const ready = () => {
  document.querySelectorAll("details.ov-when:not([data-ready])").forEach(begin)
  for (const current of document.querySelectorAll(".ov-list tr[aria-current]:not([data-seen])")) {
    current.dataset.seen = "yes"
    const list = current.closest(".ov-list")
    list.scrollTop = Math.max(0, current.offsetTop - list.clientHeight / 2)
  }
}
new MutationObserver(() => { clearTimeout(soon); soon = setTimeout(ready, 60) }).observe(root, {childList: true, subtree: true})
ready()
})()
