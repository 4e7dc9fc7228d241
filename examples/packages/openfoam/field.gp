# The speed in the square, and the direction of the flow at every fourth cell of every fourth row.
set terminal pngcairo size 640,560
set output "cavity.png"
set title "Speed in m/s"
set size ratio -1
set xrange [0:1]
set yrange [0:1]
set cbrange [0:1]
set palette defined (0 "#f7fbff", 0.25 "#9ecae1", 0.5 "#4292c6", 1 "#08306b")
unset key
plot "field.txt" using 1:2:3 with image, \
     "field.txt" every 4:4 using 1:2:($4 / $3 * 0.04):($5 / $3 * 0.04) with vectors linecolor "#333333"
