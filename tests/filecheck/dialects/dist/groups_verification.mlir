// RUN: DISTIR_DIAGNOSTICS

// What is over a group is along an axis.
func.func @main(%x: tensor<4xf32, #dist.on<0:2>>) -> tensor<4xf32, #dist.on<0:2>> {
  %y = "dist.allreduce"(%x) <{reduction = #dist.reduction sum}> : (tensor<4xf32, #dist.on<0:2>>) -> tensor<4xf32, #dist.on<0:2>>
  func.return %y : tensor<4xf32, #dist.on<0:2>>
}
// CHECK: expected an axis: over which one the devices communicate

// -----

// Devices of one group do not send to each other.
func.func @main(%x: tensor<4xf32, #dist.on<0:2>>) {
  %y = dist.send %x to 1 : tensor<4xf32, #dist.on<0:2>> -> tensor<4xf32, #dist.on<1:3>>
  func.return
}
// CHECK: expected a send between groups of equal size and no common device, got #dist.on<0:2> and #dist.on<1:3>

// -----

func.func @main(%x: tensor<4xf32, #dist.on<0:2>>) -> tensor<4xf32, #dist.on<0:2>> {
  func.return %x : tensor<4xf32, #dist.on<0:2>>
}
// CHECK: @main is over a group of devices: expected one dist.mesh in the module, got 0

// -----

// A group is that of the mesh.
dist.mesh @mesh = <["tp" = 4]>
func.func @main(%x: tensor<4xf32, #dist.on<0:2>>) -> tensor<4xf32, #dist.on<0:2>> {
  func.return %x : tensor<4xf32, #dist.on<0:2>>
}
// CHECK: @main: argument 0: expected a value on a group of 4 devices, those of the mesh, got #dist.on<0:2>

// -----

// Every device of a group has what the others have.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4xf32, #dist.on<0:2>>, %y: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0:2>> {
  func.return %x : tensor<4xf32, #dist.on<0:2>>
}
// CHECK: @main: argument 1: expected a value on a group of 2 devices, those of the mesh, got #dist.on<0>

// -----

// Extents fit the axis.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4xf32, #dist.on<0:2>>) -> tensor<12xf32, #dist.on<0:2>> {
  %y = dist.allgather %x dim 0 over "tp" : (tensor<4xf32, #dist.on<0:2>>) -> tensor<12xf32, #dist.on<0:2>>
  func.return %y : tensor<12xf32, #dist.on<0:2>>
}
// CHECK: expected the result over "tp" of shape [8], got [12]

// -----

// Every device along the axis has a window.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4xf32, #dist.on<0:2>>) -> tensor<4xf32, #dist.on<0:2>> {
  %y = dist.exchange %x dim 0 from [4, 0, 0] over "tp" : (tensor<4xf32, #dist.on<0:2>>) -> tensor<4xf32, #dist.on<0:2>>
  func.return %y : tensor<4xf32, #dist.on<0:2>>
}
// CHECK: expected 2 starts, one per device along "tp", got 3

// -----

// Uneven shards are no group's.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<5xf32, #dist.on<0:2>>) -> tensor<3xf32, #dist.on<0:2>> {
  %y = dist.reducescatter sum %x dim 0 over "tp" : (tensor<5xf32, #dist.on<0:2>>) -> tensor<3xf32, #dist.on<0:2>>
  func.return %y : tensor<3xf32, #dist.on<0:2>>
}
// CHECK: expected dim 0 divisible by 2 devices, got 5

// -----

// An operation whose participants differ is not symmetric.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4xf32, #dist.on<0:2>>) -> tensor<4xf32, #dist.on<0:2>> {
  %y = dist.broadcast %x to [0] : (tensor<4xf32, #dist.on<0:2>>) -> tensor<4xf32, #dist.on<0:2>>
  func.return %y : tensor<4xf32, #dist.on<0:2>>
}
// CHECK: dist.broadcast is not symmetric: devices of a group take part in collectives over an axis and in sends

// -----

// What differs from device to device is said for each of them,
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4xf32, #dist.on<0:2>>) -> tensor<2xf32, #dist.on<0:2>> {
  %y = dist.slice %x [0:2] {dist.by_rank = #dist.by_rank<["tp"], [{starts = array<i64: 0>, stops = array<i64: 2>}]>} : tensor<4xf32, #dist.on<0:2>> -> tensor<2xf32, #dist.on<0:2>>
  func.return %y : tensor<2xf32, #dist.on<0:2>>
}
// CHECK: expected 2 entries of dist.by_rank, one per device along its axes, got 1

// -----

// and fits the operation.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4xf32, #dist.on<0:2>>) -> tensor<2xf32, #dist.on<0:2>> {
  %y = dist.slice %x [0:2] {dist.by_rank = #dist.by_rank<["tp"], [{stops = array<i64: 2>}, {stops = array<i64: 3>}]>} : tensor<4xf32, #dist.on<0:2>> -> tensor<2xf32, #dist.on<0:2>>
  func.return %y : tensor<2xf32, #dist.on<0:2>>
}
// CHECK: expected the result of shape [3], got [2]
