// Entry of the replay player: defines the elements <replay-player> and <replay-compare>.

import { ReplayCompare } from "./comparison.js";
import { ReplayPlayer } from "./replay_player.js";

if (!customElements.get("replay-player")) customElements.define("replay-player", ReplayPlayer);
if (!customElements.get("replay-compare")) customElements.define("replay-compare", ReplayCompare);
