package MaxAs::Schedule;
use strict;
use warnings;
use Exporter 'import';
our @EXPORT_OK = qw(schedule_items);
sub schedule_items { my ($items) = @_; return grep { $_->{type} eq 'instr' || $_->{type} eq 'label' } @$items }
1;
