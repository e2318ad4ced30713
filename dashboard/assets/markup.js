// Figures without a script of their own: the title of the point next to the pointer is shown at once.
const NEAR_PX = 28
const HEAD_PX = 28

// A list keeps its place, and moves only if what was chosen would be out of sight.
const showChosen = (list, scrolled) => {
  const row = list?.querySelector("[aria-current]")
  if (!row) return
  list.scrollTop = scrolled
  const box = list.getBoundingClientRect()
  const place = row.getBoundingClientRect()
  if (place.top < box.top + HEAD_PX || place.bottom > box.bottom) {
    const above = list.scrollTop + place.top - box.top - box.height / 3
    // whole rows: half a row under the heads cannot be read
    list.scrollTop = Math.max(0, Math.round(above / place.height) * place.height)
  }
}

// Dragging over a history asks for the page of these dates; a double click asks for the range at first.
const LEAST_SHARE = 0.01
const MINUTE_MS = 60_000

const goToRange = (root, range) => {
  const url = new URL(location.href)
  if (range) url.searchParams.set("range", range)
  else url.searchParams.delete("range")
  // the header follows links without loading the page again
  const link = document.createElement("a")
  link.href = url
  root.append(link)
  link.click()
  link.remove()
}

const shareOf = (plot, event) => {
  const box = plot.getBoundingClientRect()
  return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1)
}

const rangeOf = (plot, first, last) => {
  const { since, until } = plot.closest("[data-since]").dataset
  const [start, end] = [Date.parse(since), Date.parse(until)]
  const textOf = ms => new Date(ms).toISOString().slice(0, 16)
  const startOfRange = start + first * (end - start)
  const endOfRange = start + last * (end - start) + MINUTE_MS
  return `${textOf(startOfRange)}..${textOf(endOfRange)}`
}

const dragRanges = root => {
  let drag
  root.onpointerdown = event => {
    const plot = event.target.closest("[data-since] .rw-plot")
    // a finger scrolls the page
    if (!plot || event.button !== 0 || event.pointerType === "touch") return
    const mark = document.createElement("div")
    mark.className = "rw-dragged"
    plot.append(mark)
    plot.setPointerCapture(event.pointerId)
    drag = { plot, mark, start: shareOf(plot, event), shares: [0, 0] }
  }
  const follow = event => {
    if (!drag) return
    drag.shares = [drag.start, shareOf(drag.plot, event)].sort((a, b) => a - b)
    const [first, last] = drag.shares
    drag.mark.style.left = `${100 * first}%`
    drag.mark.style.width = `${100 * (last - first)}%`
  }
  const end = event => {
    if (!drag) return
    const { plot, mark, shares: [first, last] } = drag
    drag = undefined
    mark.remove()
    if (event.type === "pointerup" && last - first > LEAST_SHARE) goToRange(root, rangeOf(plot, first, last))
  }
  root.onpointerup = end
  root.onpointercancel = end
  root.ondblclick = event => {
    if (event.target.closest("[data-since] .rw-plot")) goToRange(root)
  }
  return follow
}

export default ({ data, parentElement }) => {
  const root = parentElement.querySelector(".rw-markup")
  if (root.drawn !== data.html) {
    const scrolled = root.querySelector(".rw-cells")?.scrollTop ?? 0
    root.innerHTML = data.html
    root.drawn = data.html
    showChosen(root.querySelector(".rw-cells"), scrolled)
  }
  const tip = document.createElement("div")
  tip.className = "rw-tip"
  tip.hidden = true
  document.body.append(tip)
  const hide = () => { tip.hidden = true }
  const followDrag = dragRanges(root)
  const onMove = event => {
    followDrag(event)
    const plot = event.target.closest(".rw-plot")
    let nearest
    let nearestPx = NEAR_PX
    for (const title of plot?.querySelectorAll("title") ?? []) {
      const box = title.parentElement.getBoundingClientRect()
      const px = Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY)
      // of two at one place, the one that is drawn above the other
      if (px <= nearestPx) [nearest, nearestPx] = [title, px]
    }
    if (!nearest) return hide()
    tip.textContent = nearest.textContent
    tip.hidden = false
    const right = document.documentElement.clientWidth - tip.offsetWidth - 8
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 12, right))}px`
    tip.style.top = `${event.clientY + 14}px`
  }
  // assigned rather than added: a drawing that is made again has one tip
  root.onpointermove = onMove
  root.onpointerleave = hide
  return () => tip.remove()
}
