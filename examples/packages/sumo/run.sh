#!/bin/sh
# Vehicles on a road with a slow end: its network, the time between those that leave it, a picture of their ways.
set -e
netconvert --node-files road.nod.xml --edge-files road.edg.xml --output-file road.net.xml --xml-validation never
sumo --net-file road.net.xml --route-files vehicles.rou.xml --step-length 0.1 --xml-validation never --no-step-log \
     --duration-log.statistics --tripinfo-output trips.xml --fcd-output places.xml --device.fcd.period 2
# Of the second half of the vehicles, which have found a queue if there is one.
awk -F'"' '
/<tripinfo / { for (n = 1; n < NF; n += 2) if ($n ~ / arrival=$/) arrival[++count] = $(n + 1) }
END { print "headway", (arrival[count] - arrival[count / 2]) / (count / 2) }' trips.xml
# Time and place of each vehicle, and an empty line before the next.
awk -F'"' '
/<timestep / { now = $2 }
/<vehicle / { for (n = 1; n < NF; n += 2) { if ($n ~ / id=$/) id = $(n + 1); if ($n ~ / x=$/) x = $(n + 1) } print id, now, x }
' places.xml | sort -k1,1 -k2,2n | awk '$1 != id { if (id != "") print ""; id = $1 } { print $2, $3 }' > ways.txt
gnuplot ways.gp
cp ways.svg "$WINDTUNNEL_OUTPUT"
