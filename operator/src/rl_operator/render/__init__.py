"""Run + runtime + environment -> config file, ConfigMaps, pods and network. Pure: equal inputs give equal bytes."""
