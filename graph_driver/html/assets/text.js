// Colouring of code. One small tokeniser per language: a list of [class, pattern], first match wins.

const NUMBER = /[-+]?\b(?:0x[\da-f.]+p[-+]?\d+f?|\d+(?:\.\d+)?(?:e[-+]?\d+)?[fuL]*)\b/iy;
const OPCODES = "define declare internal call br ret load store phi add sub mul fadd fmul icmp fcmp select getelementptr " +
  "inbounds alloca shufflevector insertelement extractelement sext zext trunc bitcast";
const LANGUAGES = {
  python: [["com", /#.*/y], ["str", /"[^"]*"|'[^']*'/y], ["num", NUMBER],
    ["key", /\b(?:def|for|in|range|if|else|elif|return|and|or|not|where|pass|while|grid)\b/y],
    ["typ", /\b(?:[fiu](?:8|16|32|64)|bf16|bool)(?:x\d+)?\b/y], ["wrd", /[A-Za-z_@][\w.]*/y]],
  c: [["com", /\/\*.*?\*\/|\/\*.*|\/\/.*/y], ["pre", /^\s*#.*/y], ["str", /"[^"]*"/y], ["num", NUMBER],
    ["key", /\b(?:for|if|else|return|const|restrict|static|inline|typedef|struct|void)\b/y],
    ["typ", /\b(?:u?int\d+_t|float|double|size_t|char|[a-z]\w*x\d+)\b/y], ["wrd", /[A-Za-z_]\w*/y]],
  llvm: [["com", /;.*/y], ["str", /"[^"]*"/y], ["lab", /^[\w.]+:/y], ["var", /[%@!][\w.]+/y], ["num", NUMBER],
    ["typ", /\b(?:i\d+|float|double|half|bfloat|ptr|void|label)\b/y],
    ["key", new RegExp(`\\b(?:${OPCODES.split(" ").join("|")})\\b`, "y")],
    ["wrd", /[A-Za-z_][\w.]*/y]],
  asm: [["com", /#.*/y], ["lab", /^[\w.$]+:/y], ["pre", /^\s*\.\w+.*/y], ["key", /^\s+[a-z]\w*/y],
    ["var", /%\w+/y], ["num", /\$?-?\b(?:0x[\da-f]+|\d+)\b/iy], ["wrd", /[A-Za-z_.][\w.$]*/y]],
};

function coloured(text, language) {
  const rules = LANGUAGES[language], out = [];
  let plain = "", at = 0;
  const flush = () => { if (plain) out.push(document.createTextNode(plain)); plain = ""; };
  while (at < text.length) {
    let found = null;
    for (const [name, pattern] of rules) {
      pattern.lastIndex = at;
      const match = pattern.exec(text);
      if (match && match[0]) { found = [name, match[0]]; break; }
    }
    if (!found) { plain += text[at]; at += 1; continue; }
    if (found[0] === "wrd") plain += found[1];
    else { flush(); out.push(el("span", { class: `t-${found[0]}` }, found[1])); }
    at += found[1].length;
  }
  flush();
  return out;
}
