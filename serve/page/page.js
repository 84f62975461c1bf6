// The page of the service: asks for what the models can do, sends what a person types, shows the answers.

const TITLES = { answer: "Question", fill: "Masked words", classify: "Label", label: "Labels", tag: "Tags", choose: "Choice", search: "Search" };
const $ = (id) => document.getElementById(id);
let models = [];
let current = null; // the open tab
let waiting = null; // the request under way
let mask = "[MASK]"; // what stands for a masked word in a text: of the chosen model

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const percent = (p) => `${(100 * p).toFixed(p < 0.1 ? 1 : 0)}\u00a0%`;

// Screen readers say `best` when it changes; they do not read a long text aloud with it.
function show(best = [], ...more) {
  $("best").replaceChildren(...[best].flat());
  $("more").replaceChildren(...more);
  for (const box of $("more").querySelectorAll(".marked")) {
    if (box.scrollHeight <= box.clientHeight) continue;
    box.tabIndex = 0; // so that the arrow keys scroll it in every browser
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Text");
  }
}

function problem(text) {
  $("problem").textContent = text;
}

function bar(name, probability) {
  const meter = element("meter", { max: 1, value: probability });
  meter.setAttribute("aria-hidden", "true");
  return [element("span", { className: "name", textContent: name }), meter,
    element("span", { className: "number", textContent: percent(probability) })];
}

const row = (name, probability) => element("li", { className: "row" }, ...bar(name, probability));

function openTab(name, focus = false) {
  current = name;
  for (const tab of $("tabs").children) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen && focus) tab.focus();
    $(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
  waiting?.abort();
  problem("");
  show();
  const able = models.filter((model) => model.uses.includes(name));
  $("model").replaceChildren(...able.map((model) => element("option", { value: model.name, textContent: model.name })));
  $("model-row").hidden = able.length < 2;
  showMask();
  showSource();
  if (name === "choose") $("count").textContent = `, ${able.map((model) => model.choices).join(" or ")} of them`;
}

function showMask() {
  const next = models.find((model) => model.name === $("model").value)?.mask ?? mask;
  document.querySelectorAll(".mask").forEach((place) => (place.textContent = next));
  $("masked").value = $("masked").value.replaceAll(mask, next);
  mask = next;
}

// What is searched: the index of the chosen model, unless documents are pasted; without an index they are needed.
function showSource() {
  const chosen = models.find((model) => model.uses.includes("search") && model.name === $("model").value);
  if (!chosen) return;
  const answers = models.some((model) => model.uses.includes("answer"));
  $("answer-row").hidden = !answers;
  $("wants-answer").checked &&= answers;
  $("documents").required = chosen.passages === 0;
  $("documents-hint").textContent = chosen.passages
    ? `blank lines divide them; leave empty to search ${chosen.name} (${chosen.passages.toLocaleString("en")} passages)`
    : "blank lines divide them";
}

function keys(event) {
  const tabs = [...$("tabs").children];
  const at = tabs.indexOf(event.target);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  openTab(tabs[to % tabs.length].id.slice(4), true);
}

async function ask(route, fields) {
  waiting?.abort();
  const mine = (waiting = new AbortController());
  document.querySelectorAll("form").forEach((form) => form.removeAttribute("aria-busy"));
  $(route).setAttribute("aria-busy", "true"); // the buttons stay enabled: a disabled one would lose the focus
  problem("");
  try {
    const response = await fetch(`/v1/${route}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: $("model").value, ...fields }),
      signal: mine.signal,
    });
    const answer = await response.json();
    if (response.ok) return answer;
    problem(answer.error.reason);
  } catch (error) {
    if (error.name === "AbortError") return null; // another request took its place, and shows what comes of it
    problem("The service does not answer. Is it still running?");
  } finally {
    if (waiting === mine) $(route).removeAttribute("aria-busy");
  }
  show();
  return null;
}

// Offsets count characters as Python does. A JavaScript string counts some of them twice.
function marked(text, start, end) {
  const characters = Array.from(text);
  const mark = element("mark", { textContent: characters.slice(start, end).join("") });
  return [characters.slice(0, start).join(""), mark, characters.slice(end).join("")];
}

function showAnswer(answer, passage) {
  const best = answer.answer;
  const text = element("p", { className: "marked", textContent: passage });
  const pick = (candidate) => {
    text.replaceChildren(...marked(passage, candidate.start, candidate.end));
    const mark = text.querySelector("mark");
    text.scrollTop = mark.offsetTop - text.offsetTop - text.clientHeight / 2;
    for (const button of list.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", button.candidate === candidate);
    }
  };
  const list = element("ol", {}, ...answer.candidates.map((candidate) => {
    const button = element("button", { type: "button", candidate }, ...bar(candidate.text, candidate.probability));
    button.addEventListener("click", () => pick(candidate));
    return element("li", {}, button);
  }));
  const title = best
    ? [best.text, " ", element("span", { className: "number hint", textContent: percent(best.probability) })]
    : "The text has no answer to this question.";
  const none = answer.no_answer_probability === undefined ? []
    : [element("p", { className: "hint", textContent: `Probability that there is no answer: ${percent(answer.no_answer_probability)}` })];
  const nearest = best ? "The likeliest answers" : "What comes nearest";
  show(title, ...none, text, ...(answer.candidates.length ? [element("h2", { textContent: nearest }), list] : []));
  if (best) pick(answer.candidates[0]);
}

function showPassages(found) {
  const passages = found.passages.map((passage, number) => {
    const text = found.sent ? `Document ${Number(passage.id) + 1}` : `Text ${passage.id}`;
    const named = passage.title || text;
    const title = element("h2", {}, element("span", { className: "name", textContent: named }),
      element("span", { className: "number hint", textContent: passage.score.toFixed(3) }));
    const here = found.answer?.passage === number;
    const content = here ? marked(passage.text, found.answer.start, found.answer.end) : [passage.text];
    return element("div", { className: "passage" }, title, element("p", { className: "marked" }, ...content));
  });
  let best = passages.length === 1 ? "1 passage" : `${passages.length} passages`;
  if (found.answer) {
    const certain = element("span", { className: "number hint", textContent: percent(found.answer.probability) });
    best = [found.answer.text, " ", certain];
  } else if (found.candidates) best = "These passages have no answer to this question.";
  show(best, ...passages);
}

function showMasks(answer) {
  show(answer.masks.map((words) => words[0].word).join(", "), ...answer.masks.flatMap((words, number) => [
    element("h2", { textContent: `Mask ${number + 1}` }),
    element("ol", {}, ...words.map((one) => row(one.word, one.probability))),
  ]));
}

function showLabel(answer) {
  if (answer.value !== undefined) {
    show(answer.value.toFixed(3));
    return;
  }
  const all = Object.entries(answer.probabilities).sort((one, other) => other[1] - one[1]);
  show(answer.labels ? answer.labels.join(", ") || "The text has no label." : answer.label,
    element("ol", {}, ...all.slice(0, 20).map(([name, probability]) => row(name, probability))));
}

function showTags(answer) {
  const words = answer.words.flatMap((word, number) => {
    const tag = answer.tags[number];
    if (tag === "O") return [word, " "];
    const certain = percent(answer.probabilities[number]);
    return [element("mark", {}, word, " ", element("small", { textContent: `${tag} ${certain}` })), " "];
  });
  const found = answer.tags.filter((tag) => tag !== "O").length;
  show(found === 1 ? "1 word has a tag" : `${found} words have a tag`, element("p", { className: "marked" }, ...words));
}

function showChoice(answer, choices) {
  show(choices[answer.label],
    element("ol", {}, ...choices.map((choice, number) => row(choice, answer.probabilities[number]))));
}

async function labelled(route, form) {
  const second = form.second.value.trim() ? { second: form.second.value } : {};
  const answer = await ask(route, { text: form.text.value, ...second });
  if (answer) showLabel(answer);
}

const SUBMIT = {
  async answer(form) {
    const context = form.context.value;
    const answer = await ask("answer", { question: form.question.value, context, n_best: 5 });
    if (answer) showAnswer(answer, context);
  },
  async search(form) {
    const documents = form.documents.value.split(/\n\s*\n/).filter((text) => text.trim());
    const sent = documents.length > 0;
    const fields = { query: form.query.value, answer: form.answer.checked, ...(sent ? { documents } : {}) };
    const found = await ask("search", fields);
    if (found) showPassages({ ...found, sent });
  },
  async fill(form) {
    const answer = await ask("fill", { text: form.text.value });
    if (answer) showMasks(answer);
  },
  classify: (form) => labelled("classify", form),
  label: (form) => labelled("label", form),
  async tag(form) {
    const answer = await ask("tag", { text: form.text.value });
    if (answer) showTags(answer);
  },
  async choose(form) {
    const choices = form.choices.value.split("\n").filter((line) => line.trim());
    const answer = await ask("choose", { text: form.text.value, choices });
    if (answer) showChoice(answer, choices);
  },
};

function takeFiles(area) {
  area.addEventListener("dragover", (event) => {
    event.preventDefault();
    area.classList.add("over");
  });
  area.addEventListener("dragleave", () => area.classList.remove("over"));
  area.addEventListener("drop", async (event) => {
    area.classList.remove("over");
    const file = event.dataTransfer.files[0];
    if (!file) return;
    event.preventDefault();
    area.value = await file.text();
  });
}

async function start() {
  try {
    models = (await (await fetch("/v1/models")).json()).models;
  } catch {
    problem("The service does not answer. Is it still running?");
    return;
  }
  const uses = Object.keys(TITLES).filter((use) => models.some((model) => model.uses.includes(use)));
  for (const use of uses) {
    const tab = element("button", { type: "button", id: `tab-${use}`, textContent: TITLES[use] });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", use);
    tab.addEventListener("click", () => openTab(use));
    $("tabs").append(tab);
    $(use).addEventListener("submit", (event) => {
      event.preventDefault();
      SUBMIT[use](event.target);
    });
  }
  $("tabs").addEventListener("keydown", keys);
  document.querySelectorAll("textarea").forEach(takeFiles);
  $("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      $("answer").requestSubmit();
    }
  });
  $("model").addEventListener("change", () => {
    showMask();
    showSource();
  });
  $("insert").addEventListener("click", () => {
    const area = $("masked");
    area.setRangeText(mask, area.selectionStart, area.selectionEnd, "end");
    area.focus();
  });
  if (uses.length) openTab(uses[0]);
  else problem("These models only compute features, which the page does not show. See the API.");
}

start();
