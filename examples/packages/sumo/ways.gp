# Place over time of each vehicle: where the lines are dense, there is a queue.
set terminal svg size 640,420 background "white"
set output "ways.svg"
set xlabel "s"
set ylabel "m"
set yrange [0:2000]
set grid
unset key
plot "ways.txt" using 1:2 with lines linecolor "#2166ac"
