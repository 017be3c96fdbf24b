# plot.gp - draws build/log/fleet.svg from what `run` measured.
set terminal svg size 900,420 font 'sans-serif,13' background 'white'
set output 'build/log/fleet.svg'
set multiplot
set grid ytics lt 1 lw 0.5 lc rgb '#cccccc'
set border 3
set tics nomirror
set key off
set style data linespoints
set style line 1 lw 2 pt 7 ps 0.6 lc rgb '#0060ad'
set style line 2 lw 2 pt 6 ps 0.6 lc rgb '#0060ad' dt 2
set style line 3 lw 2 pt 4 ps 0.6 lc rgb '#0060ad' dt 4
set style line 4 lw 2 pt 5 ps 0.6 lc rgb '#dd6b20'
set style line 5 lw 2 pt 9 ps 0.6 lc rgb '#dd6b20' dt 2
set xlabel 'servers'
set yrange [0:]
set xrange [0:]
set size 0.333, 0.88
file(who, state) = 'build/log/fleet-3-' . who . '-' . state . '.dat'

set origin 0, 0.12
set title 'writes per second'
plot file('zklock', 'idle') using 1:2 ls 1, file('zklock', '1') using 1:2 ls 2, \
	file('zklock', 'all') using 1:2 ls 3, file('Curator', 'idle') using 1:2 ls 4, \
	file('Curator', 'all') using 1:2 ls 5

set origin 0.333, 0.12
set title 'CPU of the ensemble, % of a core'
plot file('zklock', 'idle') using 1:3 ls 1, file('zklock', '1') using 1:3 ls 2, \
	file('zklock', 'all') using 1:3 ls 3, file('Curator', 'idle') using 1:3 ls 4, \
	file('Curator', 'all') using 1:3 ls 5

set origin 0.666, 0.12
set title "another's write, p99 in ms"
plot file('zklock', 'idle') using 1:4 ls 1, file('zklock', '1') using 1:4 ls 2, \
	file('zklock', 'all') using 1:4 ls 3, file('Curator', 'idle') using 1:4 ls 4, \
	file('Curator', 'all') using 1:4 ls 5

# The key of all three.
set size 1, 0.1
set origin 0, 0
set margins 0, 0, 0, 0
unset title
unset xlabel
unset xtics
unset ytics
unset border
unset grid
set key inside center center horizontal Left reverse maxcols 5 samplen 3 noenhanced
plot [0:1] [0:1] NaN ls 1 title 'zklock, idle', NaN ls 2 title 'zklock, 1 % hold', \
	NaN ls 3 title 'zklock, all hold', NaN ls 4 title 'Curator, idle', NaN ls 5 title 'Curator, all hold'
