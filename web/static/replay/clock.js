// Clock of a replay: the present time in seconds, whether it runs, how fast, and who is told of each change.

/** Speeds that a user can choose, in seconds of the task per second. */
export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
/** The most seconds that pass between two pictures: a page that was hidden goes on where it was. */
const LONGEST_PAUSE = 0.1;

/** Runs from 0 to `duration`, where it stops. Listeners are called at most once per picture of the screen. */
export class Clock {
  constructor(duration = 0) {
    this.duration = duration;
    this.time = 0;
    this.speed = 1;
    this.playing = false;
    this._listeners = new Set();
    this._request = 0;
    this._last = null;
    this._tick = this._tick.bind(this);
  }

  /** Call a function after each change. */
  listen(listener) {
    this._listeners.add(listener);
  }

  /** Run; at the end, from the start again. */
  play() {
    if (this.duration <= 0) return;
    if (this.time >= this.duration) this.time = 0;
    this.playing = true;
    this._last = null;
    this._schedule();
  }

  pause() {
    this.playing = false;
    this._schedule();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  /** Go to a time within the replay. */
  seek(time) {
    this.time = Math.min(Math.max(time, 0), this.duration);
    this._schedule();
  }

  setSpeed(speed) {
    this.speed = speed;
    this._schedule();
  }

  /** Call the listeners with the next picture, although nothing has changed. */
  refresh() {
    this._schedule();
  }

  /** End for good: the element has left the page. */
  stop() {
    this.playing = false;
    cancelAnimationFrame(this._request);
    this._request = 0;
    this._listeners.clear();
  }

  _schedule() {
    if (!this._request) this._request = requestAnimationFrame(this._tick);
  }

  _tick(now) {
    this._request = 0;
    if (this.playing) {
      const passed = this._last === null ? 0 : Math.min((now - this._last) / 1000, LONGEST_PAUSE);
      this._last = now;
      this.time = Math.min(this.time + passed * this.speed, this.duration);
      if (this.time >= this.duration) this.playing = false;
      else this._schedule();
    }
    for (const listener of this._listeners) listener();
  }
}
