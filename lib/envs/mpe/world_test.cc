#include "lib/envs/mpe/world.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"

namespace troupe::envs {
namespace {

TEST(WorldTest, SpeedLimitsHold) {
  World world({EntityTraits{.movable = true, .max_speed = 0.5}}, {});
  world.fx[0] = 30;
  world.fy[0] = 40;
  world.Step();
  EXPECT_NEAR(world.vx[0], 0.3, 1e-15);
  EXPECT_NEAR(world.vy[0], 0.4, 1e-15);
  EXPECT_EQ(world.fx[0], 0);
}

TEST(WorldTest, PowerCanChange) {
  World world({EntityTraits{.movable = true}, EntityTraits{.movable = true}}, {});
  world.SetPower(1, 2.5, 0.5);
  EXPECT_EQ(world.traits(1).accel, 2.5);
  EXPECT_EQ(world.traits(0).accel, 5);
  world.x[1] = 10;
  world.fx = {20, 20};
  world.Step();
  EXPECT_DOUBLE_EQ(world.vx[0], 2);
  EXPECT_DOUBLE_EQ(world.vx[1], 0.5);
  world.SetPower(1, 2.5, 1);
  world.fx = {0, 20};
  world.Step();
  EXPECT_DOUBLE_EQ(world.vx[1], 1);
}

TEST(WorldTest, ForcesAreDividedByMass) {
  World world({EntityTraits{.movable = true}, EntityTraits{.movable = true, .mass = 2.25}}, {});
  world.x[1] = 10;
  world.fx = {1.5, 1.5};
  world.Step();
  EXPECT_DOUBLE_EQ(world.vx[0], 0.15);
  EXPECT_DOUBLE_EQ(world.vx[1], 0.15 / 2.25);
  world.Step();  // damped, and no force any more
  EXPECT_DOUBLE_EQ(world.vx[0], 0.1125);
  EXPECT_DOUBLE_EQ(world.x[0], 0.015);
}

TEST(WorldTest, OnlyCollidingAndMovableBodiesAreMoved) {
  World world(
      {EntityTraits{.size = 0.1, .movable = true}, EntityTraits{.size = 0.1, .movable = true, .collide = false}},
      {EntityTraits{.size = 0.1, .movable = false, .collide = true}});
  world.x = {0, 0.05, 0.1};
  world.Step();
  EXPECT_LT(world.vx[0], 0);  // pushed by the landmark
  EXPECT_EQ(world.vx[1], 0);  // touches nothing
  EXPECT_EQ(world.vx[2], 0);
  EXPECT_TRUE(world.Touch(0, 1));  // overlapping is not colliding
}

TEST(WorldTest, TouchIsAnOpenBound) {
  World world({EntityTraits{.size = 0.25}, EntityTraits{.size = 0.5}}, {});
  world.x = {0, 0.75};
  EXPECT_FALSE(world.Touch(0, 1));
  world.x[1] = std::nextafter(0.75, 0.0);
  EXPECT_TRUE(world.Touch(0, 1));
  world.x[1] = 0.7503;  // inside of the bound of squares, outside of touch
  EXPECT_FALSE(world.Touch(0, 1));
}

TEST(WorldTest, ScattersUniformlyWithinTheBound) {
  World world({EntityTraits()}, std::vector<EntityTraits>(2000));
  base::PhiloxSequence random(base::PhiloxKey::Make(5, base::RandomStream::kTest), {});
  world.Scatter(1, 2000, 0.25, random);
  EXPECT_EQ(world.x[0], 0);
  double sum = 0, squares = 0;
  for (size_t i = 1; i < world.num_entities(); ++i) {
    sum += world.x[i] + world.y[i];
    squares += world.x[i] * world.x[i] + world.y[i] * world.y[i];
  }
  EXPECT_NEAR(sum / 4000, 0, 0.01);                      // standard error 0.0023
  EXPECT_NEAR(squares / 4000, 0.0625 / 3, 0.0625 / 30);  // of 0.0208, standard error 0.0003
  EXPECT_LT(*std::max_element(world.x.begin(), world.x.end()), 0.25);
  EXPECT_GE(*std::min_element(world.y.begin(), world.y.end()), -0.25);
}

TEST(WorldTest, StartsFromAState) {
  World world({EntityTraits{.movable = true, .silent = false}, EntityTraits()}, {EntityTraits()}, 2);
  world.said(0)[1] = 3;
  world.said(1)[0] = 4;
  WorldState state;
  state.agents = {{.position = {1, 2}, .velocity = {3, 4}, .said = {5, 6}}, {.position = {7, 8}}};
  state.landmarks = {{.position = {9, 10}}};
  world.Set(state);
  EXPECT_EQ(world.x, (std::vector<double>{1, 7, 9}));
  EXPECT_EQ(world.vy, (std::vector<double>{4, 0, 0}));
  EXPECT_EQ(world.said(0)[0], 5);
  EXPECT_EQ(world.said(0)[1], 6);
  EXPECT_EQ(world.said(1)[0], 0);  // not given: silence
  world.Rest();
  EXPECT_EQ(world.vx[0], 0);
  EXPECT_EQ(world.said(0)[1], 0);
  EXPECT_EQ(world.x[0], 1);
}

}  // namespace
}  // namespace troupe::envs
