// Which view is shown: the address after # says it, /NAMESPACE or /NAMESPACE/JOB. Nothing is stored.

import { ApiError, read, setToken } from "./api.js";
import { element } from "./dom.js";
import { showJob } from "./job.js";
import { showJobs } from "./jobs.js";

const main = document.getElementById("main");
const notice = document.getElementById("notice");
const place = document.getElementById("place");
const logout = document.getElementById("logout");

let login = null;
let loggedIn = false;
let view = new AbortController();

function tell(text, bad = false) {
  if (notice.textContent !== text) notice.textContent = text;
  notice.classList.toggle("bad", bad);
}

/** Says what failed; gives whether trying again may help. */
function fail(error) {
  if (error instanceof ApiError && error.code === 401) {
    forget();
    tell(error.message, true);
    askForToken();
    return false;
  }
  tell(error instanceof ApiError ? error.message : "The server does not answer; trying again.", true);
  return !(error instanceof ApiError) || error.code >= 429;
}

function forget() {
  loggedIn = false;
  setToken(null);
  view.abort();
  place.hidden = true;
  logout.hidden = true;
}

function show() {
  if (!loggedIn) return;
  view.abort();
  view = new AbortController();
  tell("");
  const [namespace, name] = address();
  place.elements.namespace.value = namespace || login.namespace;
  document.title = name ? `${name} - drillcore` : "drillcore";
  main.replaceChildren(element("p", { class: "dim" }, "Loading"));
  const { signal } = view;
  if (name) showJob(main, namespace, name, signal, fail, tell);
  else showJobs(main, namespace || login.namespace, signal, fail);
}

/** Namespace and job of the address; an address that nobody can read is that of the first page. */
function address() {
  try {
    return location.hash.slice(2).split("/").map(decodeURIComponent);
  } catch {
    return [];
  }
}

function enter() {
  loggedIn = true;
  place.hidden = false;
  logout.hidden = login.kind === "None";
  show();
}

function askForToken() {
  const field = element("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const form = element("form", { class: "login" },
    element("h2", {}, "Log in"),
    element("label", { for: "token" }, "A token of the cluster that may get ExtractionJobs"), field,
    element("p", { class: "dim" }, "For example: ", element("code", {}, "kubectl create token SERVICEACCOUNT"),
      ". It stays in this page's memory and is gone after a reload."),
    element("button", {}, "Log in"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(field.value.trim());
    field.value = "";
    enter();
  });
  main.replaceChildren(form);
  field.focus();
}

place.addEventListener("submit", (event) => {
  event.preventDefault();
  const target = `#/${encodeURIComponent(place.elements.namespace.value)}`;
  if (location.hash === target) show();
  else location.hash = target;
});
logout.addEventListener("click", () => {
  forget();
  tell("");
  askForToken();
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("home").addEventListener("click", (event) => {
  event.preventDefault();
  location.hash = "";
});
window.addEventListener("hashchange", show);

async function start() {
  try {
    login = await read("/v1/login");
  } catch (error) {
    fail(error);
    return;
  }
  if (login.kind === "None") enter();
  else askForToken();
}

start();
