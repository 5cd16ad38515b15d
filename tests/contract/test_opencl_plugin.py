"""The conformance suite over the OpenCL plugin, on the runtime that is there: PoCL in CI."""

from __future__ import annotations

from targetmem.conformance import DeviceConformance, PluginConformance
from targetmem.plugins.opencl import OpenCLPlugin


class TestOpenCLPlugin(PluginConformance):
    """The first OpenCL device, called directly."""

    make_plugin = OpenCLPlugin


class TestOpenCLDevice(DeviceConformance):
    """The first OpenCL device behind a manager."""

    make_plugin = OpenCLPlugin
