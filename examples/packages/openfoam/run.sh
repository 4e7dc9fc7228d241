#!/bin/sh
# A flow in a square whose lid moves: its steady state, the lowest velocity along the vertical centre line, a picture.
set -e
blockMesh > mesh.log
simpleFoam
# The last iterations' folder has the field, the cells of each row one after the other.
last=$(ls -d [01]* | sort -n | tail -1)
awk -v N={{cells}} '
/^\(/ && NF == 1 { inside = 1; next }
/^\)/ { inside = 0 }
inside && cell < N * N {
  gsub(/[()]/, "")
  column = cell % N; row = int(cell / N); cell++
  print (column + 0.5) / N, (row + 0.5) / N, sqrt($1 * $1 + $2 * $2), $1, $2 > "field.txt"
  if (column == N - 1) print "" > "field.txt"
  if (column == N / 2 - 1) left = $1
  if (column == N / 2 && (left + $1) / 2 < lowest) { lowest = (left + $1) / 2; at = (row + 0.5) / N }
}
END { print "lowest u", lowest, "at", at }' "$last/U"
gnuplot field.gp
cp cavity.png "$WINDTUNNEL_OUTPUT"
