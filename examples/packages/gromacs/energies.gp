# Temperature over the time of the run.
set terminal svg size 640,360 background "white"
set output "energies.svg"
set xlabel "ps"
set ylabel "temperature in K"
set grid
unset key
plot "energies.xvg" using 1:4 with lines linecolor "#2166ac"
