// Progress of a job, and the button to cancel it.

import * as api from "./api.js";
import { announce, el, place } from "./dom.js";
import { duration } from "./format.js";

const FIRST_WAIT = 250; // milliseconds between two requests for a job; the time grows
const LONGEST_WAIT = 1000;
const LONG = 5; // seconds after which the elapsed time is shown
const PASSING = [0, 429, 503]; // status codes after which the request is repeated
const ANNOUNCED_EVERY = 15000; // milliseconds: screen readers must not speak all the time

const pause = (milliseconds, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, milliseconds);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

/** Show the progress of a job until it ends, and return the job; return null if the view was left before. */
export async function follow(context, title, describe) {
  const { signal } = context;
  let job = await api.job(context.job, signal);
  if (!isRunning(job)) return job;
  const shown = progressCard(context, title, describe);
  place(context, shown.element);
  let wait = FIRST_WAIT;
  let spoken = -Infinity;
  while (isRunning(job)) {
    shown.update(job);
    if (performance.now() - spoken > ANNOUNCED_EVERY) {
      announce(wordsOf(job));
      spoken = performance.now();
    }
    await pause(wait, signal);
    if (signal.aborted) return null;
    wait = Math.min(1.2 * wait, LONGEST_WAIT);
    try {
      job = await api.job(context.job, signal);
    } catch (error) {
      if (!PASSING.includes(error.status)) throw error;
      shown.say(error.message);
    }
  }
  return job;
}

const isRunning = (job) => job.state === "queued" || job.state === "running";

function wordsOf(job) {
  if (job.state === "queued") return "Waiting for other jobs to end.";
  const passed = job.seconds >= LONG ? ` ${duration(job.seconds)} so far.` : "";
  const left = job.seconds_left > 0 ? ` About ${duration(job.seconds_left)} left.` : passed;
  return `${job.stage || "This has begun"}.${left}`;
}

function progressCard(context, title, describe) {
  const bar = el("progress", { max: 1, "aria-label": "Progress" });
  const words = el("p", { class: "progress-words" });
  const part = el("span", { class: "progress-part", "aria-hidden": "true" });
  const more = el("div");
  const stopping = "This is being stopped.";
  const cancel = el("button", { type: "button", class: "button quiet" }, "Cancel");
  cancel.addEventListener("click", async () => {
    cancel.disabled = true;
    words.textContent = stopping;
    try {
      await api.cancel(context.job);
    } catch (error) {
      cancel.disabled = false;
      context.report(error);
    }
  });
  const subtitle = el("p", { class: "lead" });
  const state = el("div", { class: "grow" }, el("div", { class: "progress-head" }, words, part), bar);
  const element = el("section", {}, el("h1", {}, title), subtitle,
    el("div", { class: "card" }, el("div", { class: "progress-row" }, state, cancel), more));
  return {
    element,
    say: (sentence) => { words.textContent = sentence; },
    update(job) {
      const known = job.state === "running" && typeof job.progress === "number";
      if (known) bar.value = job.progress;
      else bar.removeAttribute("value");
      part.textContent = known ? `${Math.floor(100 * job.progress)} %` : "";
      words.textContent = cancel.disabled ? stopping : wordsOf(job);
      subtitle.textContent = describe.subtitle(job);
      describe.more?.(more, job);
    },
  };
}

/** Show that a job failed or was cancelled, with a link back to the form. */
export function showEnd(context, job, again) {
  const cancelled = job.state === "cancelled";
  announce(cancelled ? "This was cancelled." : "");
  place(context, el("section", { class: "card narrow" },
    el("h1", {}, cancelled ? "Cancelled" : "This did not work"),
    el("p", { role: cancelled ? null : "alert", class: cancelled ? null : "notice bad" },
      cancelled ? "No result was kept." : job.error),
    el("p", { class: "actions" }, el("a", { class: "button", href: again }, "Back to the form"))));
}
