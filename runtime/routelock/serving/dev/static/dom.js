// Elements without markup: all content becomes text.

export const $ = (id) => document.getElementById(id);

/** Make an element. `props` are attributes; `on…` are listeners; children are nodes or text. */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

export const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export const json = (value) => JSON.stringify(value, null, 2);

/** JSON as it is written in one place becomes readable; other text stays as it is. */
export function pretty(text) {
  try {
    return json(JSON.parse(text));
  } catch {
    return text;
  }
}

export function seconds(from, to) {
  const passed = Math.max(0, to - from);
  return passed < 1 ? `${Math.round(passed * 1000)} ms` : `${passed.toFixed(passed < 10 ? 1 : 0)} s`;
}

/** US dollars as in the terminal: what is not zero is not shown as zero. */
export function dollars(cost) {
  if (cost >= 1 || !cost) return `$${cost.toFixed(2)}`;
  const places = cost >= 0.0001 ? 4 : Math.min(1 - Math.floor(Math.log10(cost)), 9);
  return `$${cost.toFixed(places)}`;
}

/** The text of a message; parts that are no text are named. */
export function textOf(message) {
  const content = message.content;
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return message.refusal ?? "";
  return content.map((part) => (part.type === "text" ? part.text : `[${part.type}]`)).join("");
}
