"""Analysis of results: tables, distributions, sensitivities, leaderboards, sweeps and replays."""
