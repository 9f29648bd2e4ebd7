"""Machines that Vagrant makes from a box, under VirtualBox or libvirt."""
