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
  const row = form.elements.row.value
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
  form.onclick = event => {
    const button = event.target.closest("button[data-kind]")
    if (button) choose(button)
  }
  form.onsubmit = event => {
    event.preventDefault()
    send()
  }
  form.onkeydown = event => {
    if (event.key === "Escape") line.hidden = true
  }
  document.takeKeys("decisions", event => {
    // a row was chosen whose page is not drawn yet: a letter is for that page
    const openRow = document.openRow()?.dataset.row ?? row
    const button = form.querySelector(`button[data-letter="${CSS.escape(event.key)}"]`)
    if (!button || !form.isConnected || openRow !== row) return false
    // the same for marks: a letter is for all that are marked when it is pressed
    const marks = document.markedRows && [...document.markedRows].sort().join("|")
    if (marks !== undefined && marks !== form.elements.marked.value) return false
    choose(button)
    return true
  })
}
