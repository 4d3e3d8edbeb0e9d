"""Pods on this machine: a small kubelet, and a process for each container."""
