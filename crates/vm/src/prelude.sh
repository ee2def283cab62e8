# Functions for the scripts that prepare the devices of a guest.

# Makes a DAX device of a region's namespace: `devdax region0 namespace0.0`. The kernel chooses its name.
devdax() {
  devdax_bus=/sys/bus/nd
  # A namespace that was found with the device belongs to nd_pmem; one that was just created belongs to no driver.
  if [ -e $devdax_bus/drivers/nd_pmem/$2 ]; then echo $2 > $devdax_bus/drivers/nd_pmem/unbind; fi
  devdax_seed=$(cat $devdax_bus/devices/$1/dax_seed)
  cat /proc/sys/kernel/random/uuid > $devdax_bus/devices/$devdax_seed/uuid
  echo pmem > $devdax_bus/devices/$devdax_seed/mode
  echo 2097152 > $devdax_bus/devices/$devdax_seed/align
  echo $2 > $devdax_bus/devices/$devdax_seed/namespace
  echo $devdax_seed > $devdax_bus/drivers/dax_pmem/bind
}
