# mpi_changes.sh open-mpi-ucx|open-mpi-ofi|mpich: the engine alone moves old bytes, with pindown preloaded none.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 FI_UNIVERSE_SIZE=16 PINDOWN_SUMMARY=1
# UCX: over the device even to itself, and by a registration of the buffer rather than a copy.
export UCX_NET_DEVICES=rxe0:1 UCX_TLS=rc_verbs,ud_verbs,self UCX_IB_GID_INDEX=0 UCX_RNDV_THRESH=8192
export UCX_RNDV_SCHEME=get_zcopy MPIR_CVAR_NOLOCAL=1

case $1 in
open-mpi-ucx)
  run="mpirun.openmpi -n 2 --oversubscribe --mca pml ucx" mpi=libmpi.so.40
  with="-x LD_PRELOAD=$PWD/libpindown_ucx.so" ;;
open-mpi-ofi)
  run="mpirun.openmpi -n 2 --oversubscribe --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm"
  mpi=libmpi.so.40 with="-x LD_PRELOAD=$PWD/libpindown_fabric.so" ;;
mpich)
  run="mpirun.mpich -n 2" mpi=libmpich.so.12 with="-genv LD_PRELOAD $PWD/libpindown_ucx.so" ;;
*) echo "unknown: $1" >&2; exit 2 ;;
esac

# mpirun's own status says little: the line that the last rank prints counts, and that each rank says at its end
# that it was served, so that a library that was not used does not pass.
echo "$1 alone:"
$run mpi_changes $mpi 2 stale >/tmp/out 2>&1
cat /tmp/out
grep -q 'times each, all stale$' /tmp/out || exit 1
echo "$1 with pindown:"
$run $with mpi_changes $mpi "${2:-100}" right >/tmp/out 2>&1
cat /tmp/out
grep -q 'times each, all right$' /tmp/out && [ "$(grep -c '^pindown_.*monitor: ' /tmp/out)" = 2 ]
