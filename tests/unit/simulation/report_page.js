// Runs a report's script on the least of a document that it needs, clicks on everything, and prints the texts of its cards.
const fs = require("fs");
const html = fs.readFileSync(process.argv[2], "utf8");
const json = html.match(/id="data">(.*?)<\/script>/s)[1], script = html.split("<script>\n")[1].split("</script>")[0];
class Node {
  constructor(tag) { Object.assign(this, { tag, children: [], listeners: {}, style: {}, textContent: "", value: "", clientWidth: 1000, offsetWidth: 10, offsetHeight: 10 }); this.classList = { add() {}, remove() {} }; }
  append(...nodes) { this.children.push(...nodes); if (this.tag === "select") this.value ||= nodes[0].value || nodes[0].children[0]; }
  appendChild(node) { this.children.push(node); return node; }
  insertBefore(node) { this.children.push(node); return node; }
  replaceChildren(...nodes) { this.children = nodes; }
  setAttribute(name, value) { if (name === "value") this.value = value; }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  scrollIntoView() {} focus() {} setPointerCapture() {}
  getBoundingClientRect() { return { left: 0, top: 0, width: 1000, height: 400 }; }
  getContext() { return new Proxy({}, { get: (known, name) => name in known ? known[name] : () => ({ width: 10 }), set: (known, name, value) => { known[name] = value; return true; } }); }
}
const body = new Node("body");
Object.assign(globalThis, {
  document: { body, documentElement: new Node("html"), createElement: tag => new Node(tag), createElementNS: (_, tag) => new Node(tag), getElementById: () => ({ textContent: json }) },
  getComputedStyle: () => ({ getPropertyValue: () => "#000" }), innerWidth: 390, innerHeight: 800, devicePixelRatio: 1, addEventListener() {}, matchMedia: () => ({ addEventListener() {} }),
});
(0, eval)(script);
const text = node => typeof node === "string" ? node : node.textContent + node.children.map(text).join(" ");
const click = node => {
  if (typeof node === "string") return;
  for (const name of ["click", "change"]) node.listeners[name]?.({});
  [...node.children].forEach(click);
};
click(body);
body.children.forEach(card => console.log(text(card).replace(/\s+/g, " ")));
