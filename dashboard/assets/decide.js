// Buttons of decisions. One that needs a value or a reason opens a line for them; a letter presses its button.
export default ({ data, parentElement, setTriggerValue }) => {
  const root = parentElement.querySelector(".rw-decide")
  if (root.drawn !== data.html) {
    root.innerHTML = data.html
    root.drawn = data.html
  }
  const form = root.querySelector("form")
  if (!form) return
  const line = form.querySelector(".line")
  let kind
  const send = () => {
    const fields = Object.fromEntries(new FormData(form))
    setTriggerValue("decision", { ...fields, kind })
    line.hidden = true
  }
  const choose = button => {
    kind = button.dataset.kind
    const { value, reason, start } = button.dataset
    if (value === undefined && reason === undefined) return send()
    line.hidden = false
    form.elements.value.hidden = value === undefined
    form.elements.value.placeholder = value ?? ""
    form.elements.value.value = start ?? ""
    form.elements.reason.hidden = reason === undefined
    form.elements.reason.required = reason === "required"
    line.querySelector("b").textContent = button.title
    const first = value === undefined ? form.elements.reason : form.elements.value
    first.focus()
    first.select()
  }
  const onClick = event => {
    const button = event.target.closest("button[data-kind]")
    if (button) choose(button)
  }
  const onSubmit = event => {
    event.preventDefault()
    send()
  }
  // a row was chosen whose page is not drawn yet: a letter is for that page
  const isLeft = () => {
    const row = document.chosenRow ?? document.querySelector("[data-row][aria-current]")?.dataset.row
    return row !== undefined && row !== form.elements.row.value
  }
  if (document.chosenRow === form.elements.row.value) document.chosenRow = undefined
  const onKey = event => {
    if (isLeft()) return
    if (event.key === "Escape" && form.contains(event.target)) line.hidden = true
    const isPlain = !event.metaKey && !event.ctrlKey && !event.altKey
    if (!isPlain || event.target.closest("input, textarea, select, [contenteditable]")) return
    const button = form.querySelector(`button[data-letter="${CSS.escape(event.key)}"]`)
    if (!button) return
    event.preventDefault()
    choose(button)
  }
  const listeners = [[form, "click", onClick], [form, "submit", onSubmit], [document, "keydown", onKey]]
  const remove = () => listeners.forEach(([target, name, listener]) => target.removeEventListener(name, listener))
  // a form of a regression that was left must not decide about it
  document.removeDecideListeners?.()
  document.removeDecideListeners = remove
  listeners.forEach(([target, name, listener]) => target.addEventListener(name, listener))
  // the header's keys come first, because they choose another row; its rows are drawn by now
  document.replayShellKeys?.()
  document.replayKeys(onKey, event => !isLeft() && !["j", "k", "/", "Enter"].includes(event.key))
  return remove
}
