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
  const onMove = event => {
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
