# plot.gp - draws build/log/bench.svg from what `run --plot` measured.
set terminal svg size 900,420 font 'sans-serif,13' background 'white'
set output 'build/log/bench.svg'
set datafile missing '?'
set multiplot
set logscale y
set format y '%.0s%c'
set yrange [10:200000]
set ylabel 'acquisitions per second'
set grid ytics lt 1 lw 0.5 lc rgb '#cccccc'
set border 3
set tics nomirror
set key off
set style data linespoints
set style line 1 lw 2 pt 7 ps 0.6 lc rgb '#0060ad'
set style line 2 lw 2 pt 6 ps 0.6 lc rgb '#0060ad' dt 2
set style line 3 lw 2 pt 5 ps 0.6 lc rgb '#dd6b20'
set style line 4 lw 2 pt 0 lc rgb '#666666' dt 3

set size 0.5, 0.88
set origin 0, 0.12
set title 'one name, 8 clients on each server'
set xlabel 'PostgreSQL servers'
set xrange [0.9:4.1]
set xtics 1
plot 'build/log/servers.dat' using 1:2 ls 1, '' using 1:3 ls 2, '' using 1:4 ls 3

set origin 0.5, 0.12
set title '64 names, two servers, 8 clients on each'
set xlabel 'share of acquisitions on the name''s home server'
set xrange [0.49:1.01]
set xtics 0.1
plot 'build/log/share.dat' using 1:2 ls 1, '' using 1:3 ls 2, '' using 1:4 ls 3, '' using 1:5 ls 4

# The key of both.  An advisory lock knows only its own server.
set size 1, 0.1
set origin 0, 0
set margins 0, 0, 0, 0
unset title
unset xlabel
unset ylabel
unset xtics
unset ytics
unset border
unset grid
unset logscale
set key inside center center horizontal Left reverse maxcols 4 samplen 3 noenhanced
plot [0:1] [0:1] NaN ls 1 title 'zklock, kept', NaN ls 2 title 'zklock, not kept', \
	NaN ls 3 title 'Curator', NaN ls 4 title 'pg_advisory_xact_lock'
