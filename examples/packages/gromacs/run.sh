#!/bin/sh
# Argon on a face-centred cubic lattice, of a density of 0.8442 per sigma^3, melts at constant energy.
set -e
awk -v N={{cells}} 'BEGIN {
  edge = 0.3405 * (4 / 0.8442) ^ (1 / 3)
  split("0 0 0.5 0.5", x, " "); split("0 0.5 0 0.5", y, " "); split("0 0.5 0.5 0", z, " ")
  print "argon\n" 4 * N ^ 3
  for (i = 0; i < N; i++) for (j = 0; j < N; j++) for (k = 0; k < N; k++) for (n = 1; n <= 4; n++)
    printf "%5d%-5s%5s%5d%15.10f%15.10f%15.10f\n", ++atom % 100000, "Argon", "Ar", atom % 100000, \
      (i + x[n]) * edge, (j + y[n]) * edge, (k + z[n]) * edge
  printf "%.10f %.10f %.10f\n", N * edge, N * edge, N * edge
}' > lattice.gro
echo "Argon $((4 * {{cells}} * {{cells}} * {{cells}}))" >> argon.top
gmx -quiet grompp -f nve.mdp -c lattice.gro -p argon.top -o run.tpr
gmx -quiet mdrun -s run.tpr -deffnm run -ntmpi 1 -ntomp 1
printf 'Potential\nTotal-Energy\nTemperature\n' | gmx -quiet energy -f run.edr -o energies.xvg -xvg none
awk -v N={{cells}} '
{ potential = $2 / (4 * N ^ 3); energy = $3 / (4 * N ^ 3); sum += $4 }
NR == 1 { started = energy; print "atoms", 4 * N ^ 3; print "potential", potential; print "temperature", $4 }
END { print "mean temperature", sum / NR; print "drift", energy - started }' energies.xvg
gnuplot energies.gp
cp energies.svg "$WINDTUNNEL_OUTPUT"
