// RUN: distir-opt %s --print-op-generic | filecheck %s

// The properties behind the custom forms.

func.func @f(%x: tensor<4x8xf32>) {
  func.return
}

func.func @main(%a: tensor<4x8xf32, #dist.on<0>>, %b: tensor<4x8xf32, #dist.on<1>>) {
  // CHECK: "dist.send"(%a) <{to = 1 : i64}>
  %0 = dist.send %a to 1 : tensor<4x8xf32, #dist.on<0>> -> tensor<4x8xf32, #dist.on<1>>
  // CHECK: "dist.reducescatter"(%a, %b) <{reduction = #dist<reduction sum>, dim = 0 : i64}>
  %1, %2 = dist.reducescatter sum %a, %b dim 0 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<2x8xf32, #dist.on<0>>, tensor<2x8xf32, #dist.on<1>>)
  // CHECK: "dist.alltoall"(%a, %b) <{split = 1 : i64, concat = 0 : i64}>
  %3, %4 = dist.alltoall %a, %b split 1 concat 0 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<8x4xf32, #dist.on<0>>, tensor<8x4xf32, #dist.on<1>>)
  // CHECK: "dist.exchange"(%a, %b) <{dim = 0 : i64, starts = array<i64: 0, 2>}>
  %x0, %x1 = dist.exchange %a, %b dim 0 from [0, 2] : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<6x8xf32, #dist.on<0>>, tensor<6x8xf32, #dist.on<1>>)
  // CHECK: "dist.broadcast"(%a) <{to = array<i64: 1, 2>}>
  %5, %6 = dist.broadcast %a to [1, 2] : (tensor<4x8xf32, #dist.on<0>>) -> (tensor<4x8xf32, #dist.on<1>>, tensor<4x8xf32, #dist.on<2>>)
  // CHECK: "dist.slice"(%a) <{starts = array<i64: 0, 2>, stops = array<i64: 4, 6>}>
  %7 = dist.slice %a [0:4, 2:6] : tensor<4x8xf32, #dist.on<0>> -> tensor<4x4xf32, #dist.on<0>>
  // CHECK: "dist.scale"(%a) <{factor = #dist.rational<1/2>}>
  %8 = dist.scale %a by 1/2 : tensor<4x8xf32, #dist.on<0>>
  // CHECK: "dist.call"(%a) <{callee = @f, on = array<i64: 0>}>
  dist.call @f(%a) on [0] : (tensor<4x8xf32, #dist.on<0>>) -> ()
  func.return
}
